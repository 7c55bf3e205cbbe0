return attention { mask_mod = causal, online_func = online_func {
  online_rowscales = { total = 0.0, squares = 0.0 },
  online_fwd = function(s, r)
    return s, { total = r.total + rowsum(abs(s)), squares = r.squares + rowsum(s * s) }, 1.0
  end,
  online_fwd_epilogue = function(r) return 1.0 / max(r.total, 1.0), { n = max(r.total, 1.0), spread = sqrt(r.squares + 1.0) } end,
  forward = function(s, final) return s / detach(final.n) end } }
