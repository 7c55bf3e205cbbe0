-- delta_backwards.lua: the delta rule from the last token on, with mods of q, k and v, a skip from v and a norm of o
return linear_attention {
  reverse    = true,
  inputs     = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", { grad = true }),
                 skip = tensor("f32", "h", { grad = true }) },
  query_mod  = unit,
  key_mod    = unit,
  value_mod  = function(v) return silu(v) end,
  delta      = function(at, x) return sigmoid(x.r(at.b, at.h, at.t)) end,
  decay      = function(at, x) return x.g(at.b, at.h, at.t) end,
  output_mod = chain(function(o, at, x, v) return o + x.skip(at.h) * v end,
                     function(o, at) return o * rsqrt(dimsum(o * o) / at.d_v + 1.0) end),
}
