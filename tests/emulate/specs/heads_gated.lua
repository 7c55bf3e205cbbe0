-- Two heads of q read a state by the delta rule behind a decay by token: mods that see positions, gradients of inputs.
return linear_attention {
  query_heads = 2,
  inputs = { g = tensor("f32", "b", "h", "t", { grad = true }), beta = tensor("f32", "b", "h", "t", { grad = true }),
             turn = tensor("f32", "d", { grad = true }), lift = tensor("f32", "h", "d_v", { grad = true }) },
  query_mod  = function(v, at) return v * (1.0 + 0.01 * f32(at.pos % 7)) end,
  key_mod    = function(v, at, x) return 0.2 * tanh(v + x.turn(at.i) + 0.01 * f32(at.pos % 5)) end,
  value_mod  = function(v, at) return v * (1.0 - 0.25 * f32(at.t % 3)) end,
  decay      = function(at, x) return -0.1 - 0.5 * sigmoid(x.g(at.b, at.h, at.t)) end,
  delta      = function(at, x) return sigmoid(x.beta(at.b, at.h, at.t)) end,
  output_mod = function(o, at, x) return o * (1.0 + 0.1 * tanh(x.lift(at.h, at.i))) end,
}
