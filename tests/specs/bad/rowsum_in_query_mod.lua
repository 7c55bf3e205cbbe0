return attention {
  query_mod = function(v)
    return v / rowsum(v * v) -- error: along the head dim write dimsum
  end,
}
