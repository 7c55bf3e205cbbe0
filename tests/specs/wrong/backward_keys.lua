-- fails: backward = derived: query
local own = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local a = exp(r.m - m)
    local p = exp(s - m)
    return p, { m = m, l = r.l * a + rowsum(p) }, a
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,
  forward = function(s, final) return exp(s - final.lse) end,
  backward = function(dw, w, s, delta, final, at) return w * (dw - where(gt(at.q, 1000), 0.0, delta)) end,
}
return attention { mask_mod = causal, online_func = own }
