-- logcumsumexp_packed.lua: over time, x [..., t, channels]: log of the sum of e^x up to each step inside its chunk; `since` is the step's
-- place in its sequence (0, 1, 2, ...), from which chunks count, packed sequences begin again at 0; chunk 0: the whole sequence
return rowwise {
  along = -2,
  inputs = { chunk = scalar("i32", { default = 0 }), since = tensor("i32", "n") },
  forward = function(x, at, p)
    local place = p.since(at.i)
    return logcumsumexp(x, where(eq(place, 0) | (gt(p.chunk, 0) & eq(place % max(p.chunk, 1), 0)), 1.0, 0.0))
  end,
}
