-- A constant has no line of its own.
return linear_attention {
  causal    = false,
  query_mod = function() return true end, -- error: query_mod: must return a number, returns a bool
  decay     = function() return -1.0 end, -- error: decay: goes with causal = true alone
  delta     = function() return true end, -- error: delta: must return a number, returns a bool -- error: delta: goes with causal = true alone
  bonus     = function() return 1.0 end, -- error: bonus: goes with causal = true alone -- error: bonus: does not go with delta
}
