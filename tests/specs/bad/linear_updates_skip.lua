-- A token has several rows of v.
return linear_attention {
  updates    = 2,
  output_mod = function(o, at, x, v) return o + v end, -- error: output_mod: reads v, of which a token has a row for each of its updates
}
