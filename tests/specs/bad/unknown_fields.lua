-- Of several unknown fields the first by name is reported, in every run.
return attention { -- error: attention: unknown field 'mask' (
  score = function(s) return s end, scroe_mod = function(s) return s end, mask = causal, other = 1,
}
