-- low_rank_hard.lua: what is removed is alike from token to token, at rates of 0, 1 and 2; gates of 0, -0.02, -30 and -1e4 beside each
-- other, in time and along the channels
local function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end
return linear_attention {
  query_mod = chain(function(q) return q + 1.0 end, unit),
  key_mod   = chain(function(k) return 0.01 * k + 1.0 end, unit),
  decay     = function(at)
    local kind = (at.pos + at.i // 8) % 37
    return where(eq(kind, 5), -30.0, where(eq(kind, 17), -1e4, where(lt(kind, 20), 0.0, -0.02)))
  end,
  reader    = function(k) return -k end,
  writer    = function(k, at) return f32(at.pos % 3) * k end,
}
