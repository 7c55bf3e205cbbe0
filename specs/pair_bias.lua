-- pair_bias.lua: attention with pair bias and triangle attention of structure models (AlphaFold 2, Jumper et al. 2021): a bias by head and pair
-- that n_b / n_pairs sequences share, the rows of a triangle; keys where keep[b, kv] is 0 are not seen
return attention {
  inputs    = { bias = tensor("float", "pairs", "h", "q", "kv", { grad = true }), keep = tensor("i32", "b", "kv", { range = { 0, 2 }, default = 1 }) },
  mask_mod  = function(at, x) return ne(x.keep(at.b, at.kv), 0) end,
  score_mod = function(s, at, x) return s + x.bias(at.b // max(at.n_b // at.n_pairs, 1), at.h, at.row, at.kv) end,
}
