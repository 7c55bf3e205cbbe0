local function both(at, x) return x.a(at.b, at.h, at.t) end -- error: gives the input that decay gives, too
return linear_attention { inputs = { a = tensor("float", "b", "h", "t") }, decay = both, delta = both }
