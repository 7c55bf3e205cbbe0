return attention {
  online_func = online_func {
    online_rowscales = { l = 0.0 },
    online_fwd = function(s, r)
      local p = exp(s)
      return p, { l = r.n + rowsum(p) }, 1.0 -- error: 'n'
    end,
    online_fwd_epilogue = function(r) return 1.0 / r.l, { l = r.l } end,
    forward = function(s, final) return exp(s) / final.l end,
  },
}
