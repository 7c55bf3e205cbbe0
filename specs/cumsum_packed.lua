-- cumsum_packed.lua: over time, x [..., t, channels], t packed sequences: `since` is each step's place in its sequence
return rowwise {
  along = -2,
  inputs = { since = tensor("i32", "n") },
  forward = function(x, at, p) return cumsum(x, where(eq(p.since(at.i), 0), 1.0, 0.0)) end,
}
