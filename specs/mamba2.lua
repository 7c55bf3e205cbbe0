-- mamba2.lua: Mamba-2 (Dao and Gu 2024): q is C, k is B, of h_k groups, v is x; dt before its bias and softplus, A = -exp(a_log)
local function step(at, x) return softplus(x.dt(at.b, at.h, at.t) + x.dt_bias(at.h)) end
return linear_attention {
  inputs = { dt = tensor("float", "b", "h", "t", { grad = true }), dt_bias = tensor("f32", "h", { grad = true }),
             a_log = tensor("f32", "h", { grad = true, range = { -inf, 30.0 } }), d_skip = tensor("f32", "h", { grad = true }) },
  scale      = 1.0,
  value_mod  = function(v, at, x) return v * step(at, x) end,
  decay      = function(at, x) return -exp(x.a_log(at.h)) * step(at, x) end,
  output_mod = function(o, at, x, v) return o + x.d_skip(at.h) * v end,
}
