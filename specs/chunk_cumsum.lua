-- chunk_cumsum.lua: over time, x [..., t, channels]: scale * the sum up to each step inside its chunk; `since` is the step's place in
-- its sequence (0, 1, 2, ...), from which chunks count: packed sequences begin again at 0
return rowwise {
  along = -2,
  inputs = { chunk = scalar("i32", { default = 64, range = { 1, 1 << 24 } }), scale = scalar("f32", { default = 1.0 }), since = tensor("i32", "n") },
  forward = function(x, at, p)
    return p.scale * cumsum(x, where(eq(p.since(at.i) % p.chunk, 0), 1.0, 0.0))
  end,
}
