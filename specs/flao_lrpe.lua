-- flao_lrpe.lua: flao of silu(q) and silu(k) at linearised relative positions; q and k hold their features twice, [x, x] (flao_fal of xopes)
local function act(v) return silu(v) end
local function lrpe(lo, hi, at, x)
  local t = (at.pos + x.offset) * x.theta(at.h_k, at.i)
  return lo * cos(t), hi * sin(t)
end
return linear_attention {
  inputs     = { theta = tensor("float", "h_k", "features", { grad = true, optional = true }),
                 offset = scalar("i32", { default = 0 }), gate = tensor("float", "b", "h", "t", "d_v", { grad = true }) },
  causal     = false,
  scale      = 1.0,
  query_mod  = chain(act, half(lrpe)),
  key_mod    = chain(act, half(lrpe)),
  output_mod = function(o, at, x) return o * x.gate(at.b, at.h, at.t, at.i) end,
}
