-- Row states of an input by key: its gradient is of pairs.
return attention {
  inputs = { g = tensor("float", "b", "kv", { grad = true }) },
  mask_mod = causal,
  online_func = online_func {
    online_rowscales = { m = -inf, l = 0.0, n = 0.0 },
    online_fwd = function(s, r, at, x)
      local g, m = x.g(at.b, at.kv), max(r.m, detach(rowmax(s)))
      local a, p = exp(r.m - finite(m)), exp(s - finite(m))
      return p, { m = m, l = r.l * a + rowsum(p * (0.3 + sigmoid(g))), n = r.n + rowsum(g) }, a
    end,
    online_fwd_epilogue = function(r) return inverse(r.l), { lse = finite(r.m) + log_of_sum(r.l), n = r.n } end,
    forward = softmax_weight,
  },
}
