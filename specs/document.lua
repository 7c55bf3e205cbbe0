-- document.lua: causal within a document; doc[b, kv] is the document of a token (packed sequences)
local function same(at, x)
  local q = clamp(at.q, 0, at.len_kv - 1)                -- rows before the first key have no document
  return eq(x.doc(at.b, q), x.doc(at.b, at.kv))
end
return attention { inputs = { doc = tensor("i32", "b", "kv") }, mask_mod = both(causal, same) }
