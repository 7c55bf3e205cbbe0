return attention {
  score_mod = function(s, at)
    return softmax(s) - softmax(s) -- error: Two of them in one formula are two calls, whose results an elementwise spec combines
  end,
}
