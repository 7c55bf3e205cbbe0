return attention { mask_mod = causal, online_func = online_func {
  online_rowscales = { total = 0.0, best = -inf },
  online_fwd = function(s, r)
    local total = r.total + rowsum(abs(s))
    return s, { total = total, best = max(r.best, rowmax(s)) }, 1.0
  end,
  online_fwd_epilogue = function(r) return 1.0 / max(r.total, 1.0), { total = r.total, best = r.best } end,
  forward = function(s, final) return s / max(final.total, 1.0) end,
  combine = function(part) return 1.0, { total = splitsum(part.total), best = splitmax(part.best) } end } }
