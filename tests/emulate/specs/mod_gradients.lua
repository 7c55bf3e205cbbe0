local function rms(v, at, x) return v * rsqrt(dimsum(v * v) / at.d + 1e-6) * (x.gain(at.i) + 0.5 * x.lift(at.h_kv)) end
local function rotate(a, b, at, x)
  local t = at.pos * (exp2(-0.5 * at.i) + 0.02 * x.turn(at.i))
  return a * cos(t) - b * sin(t), a * sin(t) + b * cos(t)
end
return attention { inputs = { gain = tensor('f32', 'd', { grad = true }), lift = tensor('f32', 'h_kv', { grad = true }),
    turn = tensor('f32', 256, { grad = true }), token = tensor('f32', 'b', 'kv', { grad = true }), o_gain = tensor('f32', 'h', 'd_v', { grad = true }) }, mask_mod = causal,
  query_mod = half(rotate), key_mod = chain(rms, half(rotate)),
  value_mod = function(v, at, x) return v * sigmoid(v) + x.token(at.b, at.pos) end,
  output_mod = function(o, at, x) return o * x.o_gain(at.h, at.i) + 0.1 * o * o end }
