return attention { mask_mod = causal, output_mod = function(o, at)
  return o * rsqrt(dimsum(o * o) / at.d_v + 1e-6) + 0.01 * at.pos
end }
