-- Every unknown field is reported, by its name, in the same order in every run.
return attention {
  score = function(s) return s end, scroe_mod = function(s) return s end, mask = causal, other = 1, -- error: unknown field 'mask' -- error: unknown field 'other' -- error: unknown field 'score' -- error: unknown field 'scroe_mod'
}
