-- fails: combine = whole: where no part has a live key
local wrong = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local a, p = exp(r.m - m), exp(s - m)
    return p, { m = m, l = r.l * a + rowsum(p) }, a
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,
  forward = function(s, final) return exp(s - final.lse) end,
  combine = function(part)
    local m = splitmax(part.m)
    local a = exp(part.m - m)
    return a, { m = m, l = splitsum(part.l * a) }
  end,
}
return attention { mask_mod = causal, online_func = wrong }
