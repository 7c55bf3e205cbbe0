-- v has fewer heads than o.
return linear_attention {
  query_heads = 2,
  output_mod  = function(o, at, x, v) return o + v end, -- error: output_mod: reads v, which has fewer heads than o with query_heads
}
