return attention {
  online_func = online_func {
    online_rowscales = { l = 0.0 },
    online_fwd = function(s, r) -- error: online_fwd
      return exp(s)
    end,
    online_fwd_epilogue = function(r) return 1.0 / r.l, { l = r.l } end,
    forward = function(s, final) return exp(s) / final.l end,
  },
}
