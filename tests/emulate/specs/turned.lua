local function turn(lo, hi, at)
  local a = at.pos * exp2(-0.25 * at.i)
  return lo * cos(a) - hi * sin(a), lo * sin(a) + hi * cos(a)
end
return linear_attention { inputs = { g = tensor('float', 'b', 'h_k', 't', 'd', { grad = true }) },
  query_mod = half(turn), key_mod = function(k, at, x) return 1.0 - exp(x.g(at.b, at.h_k, at.t, at.i)) end,
  decay = function(at, x) return x.g(at.b, at.h_k, at.t, at.i) end }
