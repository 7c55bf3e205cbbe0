-- hgrn.lua: HGRN: h_t = e^g_t h_(t-1) + v_t element by element, o = h; q and k are 1 in one channel (Qin et al. 2023)
local function one(_, at) return where(eq(at.i, 0), 1.0, 0.0) end
return linear_attention {
  inputs    = { g = tensor("float", "b", "h", "t", "d_v", { grad = true }) },
  scale     = 1.0,
  query_mod = one,
  key_mod   = one,
  decay     = function(at, x) return x.g(at.b, at.h, at.t, at.j) end,
}
