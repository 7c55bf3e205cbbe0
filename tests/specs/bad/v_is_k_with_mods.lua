return attention { -- error: v = "k" goes without key_mod and value_mod
  v = "k",
  value_mod = function(v) return 2 * v end,
}
