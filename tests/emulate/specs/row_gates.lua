-- row_gates.lua: q and o by gates that have a value for each query, read at its row: positions begin elsewhere where kv > q
return attention {
  inputs = {
    g = tensor("float", "b", "h", "q", "d_v", { grad = true }),
    s = tensor("f32", "b", "h", "q", { grad = true }),
  },
  mask_mod = causal,
  query_mod = function(q, at, x) return q * x.s(at.b, at.h, at.row) end,
  output_mod = function(o, at, x) return o * sigmoid(x.g(at.b, at.h, at.row, at.i)) end,
}
