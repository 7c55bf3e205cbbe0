-- mean_pool.lua: the mean over the dim before the last: x is [..., n, rows], mean [..., rows]; [b, t / c, c, h * d] pools chunks of c
return rowwise {
  along = -2,
  forward = function(x, at) return { mean = rowsum(x) / at.n } end,
}
