return linear_attention { reverse = true, -- and a skip, a mod of v, an rms norm of o
  inputs = { dt = tensor('float', 'b', 'h', 't', { grad = true }), a = tensor('f32', 'h', { grad = true }), skip = tensor('f32', 'h', { grad = true }), w = tensor('f32', 'd_v', { grad = true }) },
  value_mod = function(v, at, x) return v * sigmoid(x.dt(at.b, at.h, at.t)) end,
  decay = function(at, x) return -exp(0.3 * x.a(at.h)) * sigmoid(x.dt(at.b, at.h, at.t)) end,
  output_mod = chain(function(o, at, x, v) return o + x.skip(at.h) * v end,
    function(o, at, x) return o * rsqrt(dimsum(o * o) / at.d_v + 1.0) * x.w(at.i) end) }
