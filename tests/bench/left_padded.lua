-- left_padded.lua: causal, and a first live key for each sequence
return attention {
  inputs = { start = tensor('i32', 'b') },
  mask_mod = function(at, x) return ge(at.kv, x.start(at.b)) & ge(at.q, at.kv) end,
}
