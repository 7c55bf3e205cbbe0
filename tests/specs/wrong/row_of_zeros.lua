-- warns: f32 = double: y is NaN where x is 0: 
return rowwise { forward = function(v) return v * rsqrt(rowsum(v * v)) end }
