-- topk.lua: the K largest elements of each row in falling order, and their places in it; equal ones as they lie in the
-- row, NaN as -inf. What a shorter row lacks is -inf, at -1.
local K = param("K", 8)
return rowwise {
  forward = function(x, at)
    local r = rank(x)
    return { values = first(placed(x, r), K, -inf), places = first(placed(at.i, r), K, -1) }
  end,
}
