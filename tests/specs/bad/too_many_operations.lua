-- error in file: has more than 20000 operations
local function long(s)
  local sum = s
  for i = 1, 30000 do sum = sum + sin(s * (i + 0.5)) end
  return sum
end
return attention { score_mod = long }
