return attention { -- error: qk2 = true goes without query_mod and key_mod
  qk2 = true,
  key_mod = function(k) return 2 * k end,
}
