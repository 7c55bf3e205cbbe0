-- keyed_grows.lua: 512 tokens forget all but 2^-103 of some channels, which nobody writes any more; then the state grows by 2^128 in
-- them, and falls by as much before its piece ends
local function few(at) return eq(at.i % 8, 3) end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = function(q) return 0.1 * q end,
  key_mod   = function(k, at)
    return where(ge(at.pos, 1280), where(few(at), 0.5, 0.0), where(ge(at.pos, 768) & few(at), 0.0, 0.1 * k))
  end,
  value_mod = function(v, at) return where(ge(at.pos, 1280), 0.0, v) end,
  delta     = function(at, x)
    return where(lt(at.pos, 1280), sigmoid(x.r(at.b, at.h, at.t)), where(lt(at.pos, 1408), 1.5, 0.0))
  end,
  decay     = function(at) return where(lt(at.pos, 768), -0.002, where(lt(at.pos, 1280), -0.14,
    where(lt(at.pos, 1408) | ge(at.pos, 1536), 0.0, -0.71))) end,
}
