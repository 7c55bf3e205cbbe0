-- What tokens with several updates of the state have no meaning for.
return linear_attention { -- error: 'updates' does not go with normalise -- error: 'updates' does not go with bonus
  updates    = 2,
  normalise  = true,
  inputs     = { u = tensor("f32", "h", "d") },
  bonus      = function(at, x) return x.u(at.h, at.i) end,
}
