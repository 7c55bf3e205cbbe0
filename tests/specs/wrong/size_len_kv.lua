-- fails: online = whole row: o_scale
local wrong = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r, at)
    local m = max(r.m, detach(rowmax(s)))
    local a, p = exp(r.m - m), exp(s - m)
    return p, { m = m, l = r.l * a + rowsum(p) }, where(gt(at.len_kv, 64), 1.0, a)
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,
  forward = function(s, final) return exp(s - final.lse) end,
}
return attention { mask_mod = causal, online_func = wrong }
