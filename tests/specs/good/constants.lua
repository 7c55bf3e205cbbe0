-- plain Lua runs while tracing: loops, tables and closures leave nothing but their values
local STEPS = { 0.5, 0.25, 0.125 }
local function poly(s)
  local sum = 0.0
  for i, c in ipairs(STEPS) do
    sum = sum + c * s ^ i
  end
  return sum
end
local scale = 2.0 * exp2(3.0) - sqrt(16.0)
return attention {
  score_mod = function(s) return poly(s) * scale + 0.0 * 1.0 end,
}
