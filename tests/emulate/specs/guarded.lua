local mine = online_func {
  online_rowscales = { m = -inf, z = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local safe = where(eq(m, -inf), 0.0, m)
    local a = exp(r.m - safe)
    local p = exp(s - safe)
    return p, { m = m, z = r.z * a + rowsum(p) }, a
  end,
  online_fwd_epilogue = function(r)
    return where(gt(r.z, 0), 1 / r.z, 0.0), { lse = where(gt(r.m, -1e35), r.m + log(r.z), -inf) }
  end,
  forward = function(s, final) return where(eq(final.lse, -inf), 0.0, exp(s - final.lse)) end,
  combine = function(part)
    local m = detach(splitmax(part.m))
    local safe = where(eq(m, -inf), 0.0, m)
    local a = exp(part.m - safe)
    return a, { m = m, z = splitsum(part.z * a) }
  end,
}
return attention { mask_mod = causal, score_mod = function(s, at) return where(lt(at.q, 20), -1e9, s) end, online_func = mine }
