-- sandwich_table.lua: cosines[n] = sum over i < D / 2 of cos(n / 10000^(2 i / D)), what sinusoidal positions n apart have in common (Chi et al. 2023): an
-- input of sandwich
local D = param("D", 128)
return elementwise {
  over = { "distances" },
  results = { cosines = tensor("f32") },
  forward = function(v, at)
    local sum = 0.0
    for i = 0, D // 2 - 1 do sum = sum + cos(at.distances * 10000.0 ^ (-2.0 * i / D)) end
    return sum
  end,
}
