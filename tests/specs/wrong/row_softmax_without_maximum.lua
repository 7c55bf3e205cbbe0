-- fails: f32 = double: 'exp' leaves the range of f32
return rowwise { forward = function(x)
  local e = exp(x)
  return e / rowsum(e)
end }
