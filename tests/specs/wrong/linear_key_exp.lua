-- fails: f32 = double: o is 
return linear_attention { key_mod = function(v) return exp(30.0 * v) end }
