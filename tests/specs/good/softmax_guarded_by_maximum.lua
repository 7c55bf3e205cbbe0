-- softmax_guarded_by_maximum.lua: a softmax by hand, whose lse has one guard around it, a bound of the maximum
local guarded = online_func {
  online_rowscales = { m = -inf, z = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local shift = where(eq(m, -inf), 0.0, m)
    local a = exp(r.m - shift)
    local p = exp(s - shift)
    return p, { m = m, z = r.z * a + rowsum(p) }, a
  end,
  online_fwd_epilogue = function(r)
    return where(gt(r.z, 0.0), 1.0 / r.z, 0.0), { lse = where(gt(r.m, -1e35), r.m + log(r.z), -inf) }
  end,
  forward = function(s, final) return where(eq(final.lse, -inf), 0.0, exp(s - final.lse)) end,
}
return attention { mask_mod = causal, online_func = guarded }
