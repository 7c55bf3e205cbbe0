-- the four vector mods: elements, reductions over the head dim, rotary pairs of both layouts
local function rotate(lo, hi, at)
  local t = at.pos * exp2(-at.i)
  return lo * cos(t) - hi * sin(t), lo * sin(t) + hi * cos(t)
end
local function unit(e, at) return e * rsqrt(dimsum(e * e) / at.d + 1e-6) end
return attention {
  query_mod  = half(rotate),
  key_mod    = interleaved(rotate),
  value_mod  = function(e) return relu(e) end,
  output_mod = unit,
  scale      = function(at) return 1.0 / at.d end,
}
