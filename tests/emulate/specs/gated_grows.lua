-- gated_grows.lua: 256 tokens forget all but 2^-74 of some channels, which nobody writes any more; then the state grows by 2^84 in them
-- (d = 64), and falls by more before its piece ends
local function few(at) return eq(at.i % 8, 3) end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = function(q) return 0.1 * q end,
  key_mod   = function(k, at)
    return where(ge(at.pos, 1280), where(few(at), 0.5, 0.0), where(ge(at.pos, 1024) & few(at), 0.0, 0.1 * k))
  end,
  value_mod = function(v, at) return where(ge(at.pos, 1280) & lt(at.pos, 1536), 0.0, v) end,
  delta     = function(at, x)
    local usual = 0.5 * sigmoid(x.r(at.b, at.h, at.t))
    return where(lt(at.pos, 1280) | ge(at.pos, 1536), usual, where(lt(at.pos, 1364), 1.5, 0.0))
  end,
  decay     = function(at)
    return where(lt(at.pos, 1280) | ge(at.pos, 1536), -0.2, where(lt(at.pos, 1408), 0.0, -0.71))
  end,
}
