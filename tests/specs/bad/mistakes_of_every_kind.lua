-- Unknown slots, declarations and functions: one run shows the mistakes of all of them, and none that follows from another.
return attention {
  inputs = {
    bias = tensor("f32", "h", { grd = true }), -- error: unknown option 'grd'
    slopes = tensor("f32", {}, "h"), -- error: dim 0 must be a name
    gate = scalar("f32", "h"), -- error: a scalar has no dims
  },
  mask = causal, -- error: unknown field 'mask'
  score_mod = function(s, at, x)
    return s + x.bias(at.h, at.q) + x.slopes(at.h) * x.gate + x.bais(at.h) -- error: there is no input 'bais'
  end,
  output_mod = function(o, at)
    return o * at.slope -- error: 'at' has no field 'slope'
  end,
}
