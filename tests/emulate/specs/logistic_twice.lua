return attention { mask_mod = causal, online_func = online_func {
  online_rowscales = { l = 0.0 },
  online_fwd = function(s, r)
    local w = sigmoid(s)
    local c = max(rowmax(w), 1e-30)
    return w, { l = r.l + rowsum(w / c) * c }, 1.0
  end,
  online_fwd_epilogue = function(r) return 1.0 / (1.0 + r.l), { l = r.l } end,
  forward = function(s, final) return sigmoid(s) / (1.0 + final.l) end } }
