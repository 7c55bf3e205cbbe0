-- fails: f32 = double: leaves the range of f32
return attention { query_mod = function(v)
  local w = v * v * 1e16
  return v * rsqrt(sqrt(dimsum(w * w)) * 1e-16 + 1e-6)
end }
