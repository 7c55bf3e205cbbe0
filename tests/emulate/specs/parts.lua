return attention { inputs = { g = tensor('f32', 'h', { grad = true }), c = tensor('f32', 'h', 'kv', { grad = true }) },
  query_mod = function(q, at) return q * (1.0 + 0.01 * at.i) end, output_mod = function(o) return o + 0.1 * o * o end,
  mask_mod = function(at) return ge(at.q, at.kv) & ne((at.q + at.kv) % 3, 0) end,
  score_mod = function(s, at, x) return s * (1.0 + 0.2 * x.g(at.h)) + x.c(at.h, at.kv) end,
  online_func = online_func {
  online_rowscales = { squares = 0.0, top = 0.0 },
  online_fwd = function(s, r) return s * s + tanh(s), { squares = r.squares + rowsum(s * s), top = r.top + rowsum(s) }, 1.0 end,
  online_fwd_epilogue = function(r)
    return 1.0 / (sqrt(1.0 + r.squares) * (2.0 + tanh(0.1 * r.top))), { n = sqrt(1.0 + r.squares), t = 2.0 + tanh(0.1 * r.top) }
  end,
  forward = function(s, final) return s * s / (final.n * final.t) + tanh(s) / final.n * (1.0 / final.t) end } }
