-- mean_pool_packed.lua: the mean over each chunk of packed sequences: values [tokens, d], `first` and `length` of every chunk are results of
-- packed_chunks; `place` (0, 1, ..., chunk - 1) says how many tokens a chunk may have. The tail of a sequence divides by its own length.
-- A token beyond the last is an error of the host device, and NaN of kernels
return elementwise {
  over = { "chunks", "steps", "d" },
  inputs = { values = tensor("float", "tokens", "d", { grad = true }), first = tensor("i32", "chunks"), length = tensor("i32", "chunks"), place = tensor("i32", "steps", { range = { 0, "steps" } }) },
  results = { mean = tensor("float", "chunks", "d") },
  forward = function(v, at, x)
    local step, length = x.place(at.steps), x.length(at.chunks)
    local token = x.first(at.chunks) + clamp(step, 0, max(length - 1, 0))
    local value = where(eq(clamp(token, 0, at.n_tokens - 1), token), x.values(token, at.d), 0 / 0)
    return where(lt(step, length), value / f32(max(length, 1)), 0.0)
  end,
}
