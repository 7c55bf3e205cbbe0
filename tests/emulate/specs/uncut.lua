return rowwise { along = -2, forward = function(x) return cumsum(x, 0.0) end }
