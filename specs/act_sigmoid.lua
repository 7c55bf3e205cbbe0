-- act_sigmoid.lua: y = 1 / (1 + e^-x), of any strides; in place where y is left out
return activation(sigmoid)
