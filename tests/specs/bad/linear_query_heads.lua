-- What several heads of q that read one state do not go with.
return linear_attention { -- error: 'updates' does not go with bonus -- error: 'query_heads' does not go with updates -- error: 'query_heads' does not go with bonus
  query_heads = 4,
  updates     = 2,
  bonus       = function(at) return 1.0 end,
}
