-- rope_table.lua: rotary positions on pairs (i, i + d/2), with the cosines and sines of every token given, [b,t,d/2]
local function given(at, x) return x.cosine(at.b, at.t, at.i), x.sine(at.b, at.t, at.i) end
return rotary(half, { cosine = tensor("float", "b", "t", "i"), sine = tensor("float", "b", "t", "i") }, given)
