return attention { -- error: v = "k" goes without value_mod
  v = "k",
  value_mod = function(v) return 2 * v end,
}
