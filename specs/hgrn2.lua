-- hgrn2.lua: HGRN-2: the key is what the gate does not keep, 1 - e^g; there is no other (Qin et al. 2024)
return linear_attention {
  inputs  = { g = tensor("float", "b", "h_k", "t", "d", { grad = true, range = { -inf, 0.0 } }) },
  key_mod = function(_, at, x) return 1.0 - exp(x.g(at.b, at.h_k, at.t, at.i)) end,
  decay   = function(at, x) return x.g(at.b, at.h_k, at.t, at.i) end,
}
