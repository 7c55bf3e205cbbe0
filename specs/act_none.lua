-- act_none.lua: y = x: a copy, of any strides; in place where y is left out
return activation(function(x) return x end)
