-- act_relu.lua: y = max(x, 0), of any strides; in place where y is left out
return activation(relu)
