return attention {
  score_mod = function(s) return math.tanh(s) end, -- error: unknown name 'math'
}
