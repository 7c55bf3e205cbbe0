-- rule_hard_first.lua: rule_hard.lua where the reader is ahead of the decay
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  inputs    = { r = tensor("float", "b", "h", "t", { grad = true, range = { 0.96875, 1.0 } }),
                e = tensor("float", "b", "h", "t", "d", { grad = true, range = { 0.9, 1.0 } }) },
  query_mod = unit,
  key_mod   = chain(function(k) return 0.01 * k + 1.0 end, unit),
  delta     = function(at, x) return f32(at.pos % 3) * x.r(at.b, at.h, at.t) end,
  decay     = function(at)
    local kind = (at.pos + at.i // 8) % 37
    return where(eq(kind, 5), -30.0, where(eq(kind, 17), -1e4, where(lt(kind, 20), 0.0, -0.02)))
  end,
  reader    = function(k, at, x) return x.e(at.b, at.h, at.t, at.i) * k end,
  writer    = function(k, at, x) return k end,
  read_first = true,
}
