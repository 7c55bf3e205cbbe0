-- packed_chunks.lua: of every chunk of n packed sequences its sequence, which of its chunks, its first token and how many it has
return elementwise {
  over = { "chunks" },
  inputs = { cu_seqlens = tensor("i32", "ends"), chunk_offsets = tensor("i32", "ends"), n = scalar("i32", { range = { 0, "ends" } }), chunk = scalar("i32", { range = { 1, 1 << 24 } }) },
  results = { sequence = tensor("i32"), index = tensor("i32"), first = tensor("i32"), length = tensor("i32") },
  forward = function(v, at, x)
    local i = packed_sequence(x.chunk_offsets, x.n, at.chunks)
    local index = at.chunks - x.chunk_offsets(i)
    local first = x.cu_seqlens(i) + index * x.chunk
    return { sequence = i, index = index, first = first, length = min(x.chunk, x.cu_seqlens(min(i + 1, x.n)) - first) }
  end,
}
