return attention { mask_mod = causal, online_func = online_func {
  online_rowscales = { best = 0.0, gap = -1.0 },
  online_fwd = function(s, r)
    local w = sigmoid(s)
    local top = detach(rowmax(w * w))
    return w, { best = max(r.best, top), gap = max(r.gap, detach(rowmax(sqrt(w)))) }, 1.0
  end,
  online_fwd_epilogue = function(r) return 1.0, { best = r.best, gap = r.gap } end,
  forward = function(s, final) return sigmoid(s) end } }
