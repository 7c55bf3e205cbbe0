-- fails: f32 = double: dq is nan in f32
return attention { query_mod = function(v) return v / (1.0 + exp(-v)) end }
