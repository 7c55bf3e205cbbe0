-- What goes with a reader and a writer: no bonus, no sum of keys; neither looks at other channels or columns.
return linear_attention {
  inputs    = { u = tensor("f32", "h", "d") },
  normalise = true,
  bonus     = function(at, x) return x.u(at.h, at.i) end, -- error: bonus: does not go with reader and writer
  reader    = function(k) return -dimsum(k) end, -- error: reader: looks at one channel at a time -- error: reader: does not go with normalise
  writer    = function(k) return k end,
}
