-- prefix_lm.lua: causal, and everybody sees the first prefix[b] keys
local function in_prefix(at, x) return lt(at.kv, x.prefix(at.b)) end
return attention {
  inputs   = { prefix = tensor("i32", "b") },
  mask_mod = either(causal, in_prefix),
}
