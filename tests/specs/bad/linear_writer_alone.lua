-- A writer writes what a reader or the delta rule has read.
return linear_attention {
  writer = function(k) return -k end, -- error: writer: goes with delta, or with a reader
}
