local function slope(at) return at.h * 2 end -- error: (local 'at'): this function is called without it
return attention { score_mod = function(s, at) local a = slope() return s + a end }
