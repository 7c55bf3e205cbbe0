-- flamingo.lua: text sees images (Flamingo, Alayrac et al. 2022): keys are images of `tokens` tokens each; image m is seen by the queries from
-- first[b, m] up to, not including, last[b, m]. A query without an image has o = 0
local function sees(at, x)
  local image = min(at.kv // x.tokens, at.n_images - 1)
  return ge(at.row, x.first(at.b, image)) & lt(at.row, x.last(at.b, image))
end
return attention {
  inputs = { first = tensor("i32", "b", "images", { range = { 0, "q + 1" } }), last = tensor("i32", "b", "images", { range = { 0, "q + 1" } }),
             tokens = scalar("i32", { default = 64, range = { 1, 1 << 24 } }) },
  mask_mod = sees,
}
