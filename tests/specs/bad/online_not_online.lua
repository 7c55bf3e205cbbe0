return attention { -- error: 'online_func' must be online_func
  online_func = function(s) return exp(s) end,
}
