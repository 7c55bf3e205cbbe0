-- Two updates a token that are added up, behind a decay by value channel.
return linear_attention {
  updates = 2,
  inputs = { g = tensor("f32", "b", "h", "t", "d_v", { grad = true }) },
  decay  = function(at, x) return -0.05 - 0.3 * sigmoid(x.g(at.b, at.h, at.t, at.j)) end,
}
