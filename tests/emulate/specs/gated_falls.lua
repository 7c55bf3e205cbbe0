-- gated_falls.lua: values that fall by 2^60 at one token: what little gates leave of them is not little; of odd heads they fall ahead of
-- the last piece, where it is the last state. All is above 0, so that no sum is small beside its terms
local function above(v) return abs(v) + 0.1 end
local function falls(at) return where(eq(at.h % 2, 1), 2238.0, 955.0) end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true }), g = tensor("float", "b", "h", "t", { grad = true }) },
  query_mod = chain(above, unit),
  key_mod   = chain(above, unit),
  value_mod = function(v, at) return (abs(v) + 0.1) * where(lt(at.pos, falls(at)), 2.0 ^ 60, 1.0) end,
  output_mod = function(o, at)
    return o * where(lt(at.pos, falls(at)), 2.0 ^ -60, where(lt(at.pos, falls(at) + 60.0), 0.0, 1.0))
  end,
  delta     = function(at, x) return 0.1 * sigmoid(x.r(at.b, at.h, at.t)) end,
  decay     = function(at, x) return max(x.g(at.b, at.h, at.t), -3.0) * 0.1 - 0.5 end,
}
