local function rotate(a, b, at)
  local t = at.pos * exp2(-0.5 * at.i)
  return a * cos(t) - b * sin(t), a * sin(t) + b * cos(t)
end
local function rms(v, at, x) return v * rsqrt(dimsum(v * v) / at.d + 1e-6) * x.gain(at.i) end
return attention { inputs = { gain = tensor('float', 'd') }, mask_mod = causal, query_mod = chain(rms, half(rotate)),
  key_mod = chain(rms, half(rotate), function(v) return v * 0.5 end),
  output_mod = chain(function(o) return o * 2.0 end, half(function(a, b) return a + b, a - b end)) }
