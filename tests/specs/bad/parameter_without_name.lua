-- What a slot's function gets has the names that the function gives it.
return attention {
  inputs    = { bias = tensor("f32", "h") },
  score_mod = function(s, at) return s + x.bias(at.h) end, -- error: a slot's function gets it as a parameter
  mask_mod  = function() return ge(at.q, at.kv) end, -- error: unknown name 'at': a slot's function gets it
}
