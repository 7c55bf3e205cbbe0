-- softmax by hand, with guards for rows without a live pair, which both sides of each comparison have among the data
local guarded = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local shift = where(eq(m, -inf), 0.0, m)
    local a = exp(r.m - shift)
    local p = exp(s - shift)
    return p, { m = m, l = r.l * a + rowsum(p) }, a
  end,
  online_fwd_epilogue = function(r)
    return where(eq(r.l, 0.0), 0.0, 1.0 / where(eq(r.l, 0.0), 1.0, r.l)), { lse = r.m + log(r.l) }
  end,
  forward = function(s, final) return exp(s - where(eq(final.lse, -inf), 0.0, final.lse)) end,
}
return attention { mask_mod = causal, online_func = guarded }
