return attention {
  score_mod = function(score, b, h, q, kv) -- error: gets 3: (s, at, x); indices and sizes are fields of at: at.b, at.h, at.q, at.kv
    return score + (q - kv)
  end,
  mask_mod = function(b, h, q, kv) return q >= kv end, -- error: gets 2: (at, x); indices and sizes are fields of at
  query_mod = half(function(v, lo, hi, at, x) return lo, hi end), -- error: gets 4: (lo, hi, at, x)
}
