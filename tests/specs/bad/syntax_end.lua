return attention {
  score_mod = function(s)
    local double = s * 2.0
    return double
} -- error: is the 'end' of a function missing ahead of it?
