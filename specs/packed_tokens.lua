-- packed_tokens.lua: of every token of n packed sequences its sequence and its position, from cu_seqlens [n + 1]
return elementwise {
  over = { "tokens" },
  inputs = { cu_seqlens = tensor("i32", "ends"), n = scalar("i32", { range = { 0, "ends" } }) },
  results = { sequence = tensor("i32"), position = tensor("i32") },
  forward = function(v, at, x)
    local i = packed_sequence(x.cu_seqlens, x.n, at.tokens)
    return { sequence = i, position = at.tokens - x.cu_seqlens(i) }
  end,
}
