-- fails: online = whole row: look at row value first
-- The largest score of the first tile alone is kept: it is another one for every order.
local wrong = online_func {
  online_rowscales = { m = -inf, l = 0.0, first = -inf },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local a, p = exp(r.m - m), exp(s - m)
    return p, { m = m, l = r.l * a + rowsum(p), first = where(eq(r.first, -inf), rowmax(s), r.first) }, a
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l), first = r.first } end,
  forward = function(s, final) return exp(s - final.lse) end,
}
return attention { mask_mod = causal, online_func = wrong }
