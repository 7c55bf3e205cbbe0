-- cross_entropy.lua: loss = lse - (1 - smoothing) x[target] - smoothing mean(x), per row; 0 where the target is `ignore`,
-- NaN, in dx too, where it is another number that is no class
return rowwise {
  inputs = { target = tensor("i32", "rows"), smoothing = scalar("f32", { default = 0.0 }), ignore = scalar("i32", { default = -100 }) },
  forward = function(x, at, p)
    local m = detach(clamp(rowmax(x), -1e38, 1e38))
    local lse = m + log(rowsum(exp(x - m)))
    local target = p.target(at.row)
    local hit = rowsum(where(eq(at.i, target), x, 0.0))
    local smooth = where(gt(p.smoothing, 0.0), p.smoothing * rowsum(x) / at.n, 0.0) -- not 0 * inf
    local live, class = ne(target, p.ignore), eq(clamp(target, 0, at.n - 1), target)
    local loss = where(live, (lse - (1.0 - p.smoothing) * hit - smooth) * where(class | ~live, 1.0, 0 / 0), 0.0)
    return { loss = loss, lse = lse, sum = total(loss), count = total(where(live, 1.0, 0.0)) } -- mean: sum / count
  end,
}
