return linear_attention {
  decay      = function(at) return at end, -- error: decay takes numbers and traced values, got at (write at.b, at.h, at.t, at.i, at.j, ...)
  bonus      = function(at, x, i) return 1.0 end, -- error: bonus: its function has 3 parameters and gets 2: (at, x)
  output_mod = function(o, at, x, v, w) return o end, -- error: output_mod: its function has 5 parameters and gets 4: (o, at, x, v)
  value_mod  = half(function(lo, hi, at, x, v) return lo, hi end), -- error: value_mod: its function has 5 parameters and gets 4: (lo, hi, at, x)
}
