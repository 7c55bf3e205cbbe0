-- softmax_guarded.lua: a softmax that asks whether a row has any number above -inf
return rowwise { forward = function(x) local m = rowmax(x) return where(gt(m, -inf), exp(x - m), 0.0) end }
