-- shared_prefix.lua: causal within a document, which also sees all of the document prefix[b, doc], such as the prompt of several answers (-1 or
-- the document itself: none); doc[b, kv] is the document of a token. Hydragen and Cascade share the memory of such prefixes (Juravsky et al. 2024)
local function sees(at, x)
  local mine = x.doc(at.b, clamp(at.q, 0, at.len_kv - 1)) -- rows before the first key have no document
  local its = x.doc(at.b, at.kv)
  return (causal(at) & eq(mine, its)) | (eq(its, x.prefix(at.b, mine)) & ne(its, mine))
end
return attention {
  inputs   = { doc = tensor("i32", "b", "kv", { range = { 0, "docs" }, sorted = true }), prefix = tensor("i32", "b", "docs", { range = { -1, "docs" } }) },
  mask_mod = sees,
}
