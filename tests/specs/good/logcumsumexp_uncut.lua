-- logcumsumexp_uncut.lua: along the dim before the last, in one piece
return rowwise { along = -2, forward = function(x) return logcumsumexp(x, 0.0) end }
