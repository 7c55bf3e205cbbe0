local function rotate(a, b, at)
  local t = at.pos * exp2(-0.25 * at.i)
  return a * cos(t) - b * sin(t), a * sin(t) + b * cos(t)
end
return attention { mask_mod = causal, query_mod = interleaved(rotate), key_mod = interleaved(rotate),
  value_mod = function(v, at) return v / (1.0 + dimmax(abs(v))) end, output_mod = function(o, at) return silu(o) + at.i / 64.0 end }
