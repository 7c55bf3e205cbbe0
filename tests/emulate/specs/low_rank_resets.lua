-- low_rank_resets.lua: what is read ahead of the decay is written beside v; rates of 0, gates of 0 and gates that leave nothing of some
-- channels, or nothing at all
return linear_attention {
  inputs     = { g = tensor("float", "b", "h", "t", "d", { grad = true }), kappa = tensor("float", "b", "h", "t", "d", { grad = true, range = "unit" }),
                 eta = tensor("float", "b", "h", "t", "d", { grad = true, range = { 0.0, 1.0 } }) },
  decay      = function(at, x)
    local g = x.g(at.b, at.h, at.t, at.i)
    local few = where(lt(g, -2.0), where(eq(at.pos % 5, 3), max(0.3 * g, -3.0), -1e4), where(gt(g, -0.4), 0.0, 0.3 * g))
    return where(eq(at.pos % 20, 16), -1e4, few)
  end,
  reader     = function(_, at, x) return -x.kappa(at.b, at.h, at.t, at.i) end,
  writer     = function(_, at, x) return where(eq(at.pos % 7, 2), 0.0, x.kappa(at.b, at.h, at.t, at.i) * x.eta(at.b, at.h, at.t, at.i)) end,
  read_first = true,
}
