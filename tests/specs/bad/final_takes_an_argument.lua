return attention {
  online_func = online_func {
    online_rowscales = { l = 0.0 },
    online_fwd = function(s, r)
      local p = exp(s)
      return p, { l = r.l + rowsum(p) }, 1.0
    end,
    online_fwd_epilogue = function(r) -- error: the row value 'part_rows' has the name of an argument of calls
      return 1.0 / r.l, { part_rows = r.l }
    end,
    forward = function(s, final) return exp(s) / final.part_rows end,
  },
}
