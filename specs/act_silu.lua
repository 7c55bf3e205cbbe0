-- act_silu.lua: y = x / (1 + e^-x) (Elfwing et al. 2017), of any strides; in place where y is left out
return activation(silu)
