return attention {
  online_func = online_func {
    online_rowscales = { m = -inf, l = 0.0 },
    online_fwd = function(s, r) -- error: 'l'
      local m = max(r.m, rowmax(s))
      return exp(s - m), { m = m }, exp(r.m - m)
    end,
    online_fwd_epilogue = function(r) return 1.0, { lse = r.m } end,
    forward = function(s, final) return exp(s - final.lse) end,
  },
}
