-- packed_offsets.lua: cu_seqlens and chunk_offsets [n + 1] of n packed sequences, from their lengths; totals below 2^24
return elementwise {
  over = { "ends", "n" },
  inputs = { chunk = scalar("i32", { default = 1, range = { 1, 1 << 24 } }) },
  operands = { lengths_of = tensor("i32", "n") },
  results = { cu_seqlens = tensor("i32", "ends"), chunk_offsets = tensor("i32", "ends") },
  forward = function(v, at, x)
    local before = lt(at.n, at.ends)
    return { cu_seqlens = where(before, v.lengths_of, 0), chunk_offsets = where(before, (v.lengths_of + x.chunk - 1) // x.chunk, 0) }
  end,
}
