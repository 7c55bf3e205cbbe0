-- geglu.lua: y = gelu(gate) * up (Shazeer 2020)
return gated(gelu)
