return attention { -- error: qk2 = true goes without query_mod
  qk2 = true,
  query_mod = function(q) return 2 * q end,
}
