-- A reader and a writer made of keys, gates and inputs, and of constants; a range of vectors.
return linear_attention {
  inputs = { kappa = tensor("float", "b", "h", "t", "d", { grad = true, range = "unit" }),
             rate = tensor("f32", "h", { grad = true, range = { 0.0, 1.0 } }) },
  key_mod    = unit,
  decay      = function(at) return -0.01 * at.i end,
  reader     = function(_, at, x) return -x.kappa(at.b, at.h, at.t, at.i) end,
  writer     = function(k, at, x) return x.rate(at.h) * (x.kappa(at.b, at.h, at.t, at.i) + 0.0 * k) end,
  read_first = true,
}
