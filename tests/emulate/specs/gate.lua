return attention { inputs = { g = tensor('f32', 'h', { grad = true }) }, mask_mod = causal, online_func = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r)
    local m = max(r.m, detach(rowmax(s)))
    local a = exp(r.m - m)
    local p = exp(s - m)
    return p, { m = m, l = r.l * a + rowsum(p) }, a
  end,
  online_fwd_epilogue = function(r, at, x) return sigmoid(x.g(at.h)) / r.l, { lse = r.m + log(r.l), top = detach(r.m) } end,
  forward = function(s, final, at, x) return exp(s - final.lse) * sigmoid(x.g(at.h)) end,
  combine = softmax_combine } }
