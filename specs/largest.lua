-- largest.lua: the K largest elements of each row where they are, zeros elsewhere; of equal ones those that come first
local K = param("K", 8)
return rowwise {
  forward = function(x) return where(lt(rank(x), K), x, 0.0) end,
}
