return attention {
  online_func = online_func {
    online_rowscales = { l = 0.0 },
    online_fwd = function(s, r)
      local p = exp(s)
      return p, { l = r.l + rowsum(p) }, 1.0
    end,
    online_fwd_epilogue = function(r) return 1.0 / r.l, { l = r.l } end,
    forward = function(s, final)
      return exp(s) / final.lse -- error: 'lse'
    end,
  },
}
