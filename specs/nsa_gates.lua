-- nsa_gates.lua: o = g_cmp o_cmp + g_slc o_slc + g_swa o_swa, gates per token and head as they are given (Yuan et al. 2025)
return elementwise {
  over = { "b", "h", "n", "d" },
  operands = { o_cmp = tensor("float"), o_slc = tensor("float"), o_swa = tensor("float"), g_cmp = tensor("float", "b", "h", "n"),
               g_slc = tensor("float", "b", "h", "n"), g_swa = tensor("float", "b", "h", "n") },
  results = { o = tensor("float") },
  forward = function(v) return v.g_cmp * v.o_cmp + v.g_slc * v.o_slc + v.g_swa * v.o_swa end,
}
