-- fails: f32 = double: dg is 
return linear_attention { inputs = { g = tensor("f32", "b", "h", "t", { grad = true }) }, decay = function(at, x) return log(sigmoid(x.g(at.b, at.h, at.t))) end }
