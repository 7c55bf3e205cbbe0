return attention { score_mod = function(s, at) return where(ge(at.q, at.kv), s, -1e9) end,
  online_func = online_func { online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local p = exp(s - m)
    return p, { m = m, l = r.l * exp(r.m - m) + rowsum(p) }, exp(r.m - m)
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse2 = r.m * 1.4426950408889634 + log2(r.l) } end,
  forward = function(s, final) return exp2((s - final.lse2 * 0.6931471805599453) * 1.4426950408889634) end } }