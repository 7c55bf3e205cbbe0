return attention {
  score_mod = function(s)
    cap = 30.0 -- error: 'cap' would be a global
    return cap * tanh(s / cap)
  end,
}
