return linear_attention {
  decay = function() return 0.5 end, -- error: decay: expected the logarithm of a factor of at most 1, a number of at most 0, given 0.5
  delta = function() return 3 end, -- error: delta: expected a number from 0 to 2, beyond which the state may grow without end, given 3
}
