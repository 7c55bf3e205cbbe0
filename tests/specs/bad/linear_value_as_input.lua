return linear_attention {
  output_mod = function(o, at, x) return o + x.v end, -- error: 'v' is an argument of linear_attention and no input
}
