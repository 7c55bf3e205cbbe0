-- attend.lua: causal attention with a slope per head (ALiBi, Press et al. 2022) and a table of biases for the 32 nearest
-- distances, both learned
return attention {
  inputs    = { slope = tensor("f32", "h", { grad = true }), table = tensor("f32", "h", 32, { grad = true }) },
  mask_mod  = causal,
  score_mod = function(s, at, x)
    local distance = at.q - at.kv
    return s - x.slope(at.h) * distance + where(lt(distance, 32), x.table(at.h, clamp(distance, 0, 31)), 0.0)
  end,
}
