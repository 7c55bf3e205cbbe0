local mine = online_func { -- error: 'online_fwd_epilogue' is missing: online_fwd_epilogue = function(r, at, x)
  online_rowscales = {},
  online_fwd = function(s) return exp(s), {}, 1.0 end,
  forward = function(s) return exp(s) end,
}
return attention { online_func = mine }
