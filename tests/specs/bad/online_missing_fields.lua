return attention {
  online_func = online_func { -- error: online_fwd
    online_rowscales = { l = 0.0 },
  },
}
