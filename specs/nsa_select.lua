-- nsa_select.lua: which blocks of keys a token reads (Yuan et al. 2025), by what compressed blocks weigh, x: its own one, the FIRST first
-- and the LOCAL latest ones, then the largest. None is of the future, -1 behind the last; -inf is chosen where forced alone, NaN as +inf
local BLOCKS, FIRST, LOCAL = param("BLOCKS", 16), param("FIRST", 1), param("LOCAL", 2)
return rowwise {
  inputs = { own = tensor("i32", "rows", { range = { 0, "n" } }), first = tensor("i32", "rows", { optional = true, range = { 0, "n" } }),
             counts = tensor("i32", "rows", { default = BLOCKS, range = { 0, BLOCKS + 1 } }) },
  forward = function(x, at, p)
    local block, age = at.i - p.first(at.row), p.own(at.row) - at.i
    local forced = where(eq(age, 0), inf, where(lt(block, FIRST), 3e37, where(lt(age, LOCAL), 2e37, min(x, 1e37))))
    local score = where(ge(block, 0) & ge(age, 0), forced, -inf)
    local r = rank(score)
    return { blocks = first(placed(where(gt(score, -inf) & lt(r, p.counts(at.row)), block, -1), r), BLOCKS, -1) }
  end,
}
