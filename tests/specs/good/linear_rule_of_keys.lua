-- No more than the delta rule: both vectors are the key, and nothing decays before it is read.
return linear_attention {
  key_mod    = unit,
  delta      = function() return 0.5 end,
  reader     = function(k) return k end,
  writer     = function(k) return k end,
  read_first = true,
}
