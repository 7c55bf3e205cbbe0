-- alibi_slopes.lua: specs/alibi.lua with learned slopes
return attention {
  inputs    = { slopes = tensor("f32", "h", { grad = true }) },
  mask_mod  = causal,
  score_mod = function(s, at, x) return s - x.slopes(at.h) * (at.q - at.kv) end,
}
