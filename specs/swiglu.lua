-- swiglu.lua: y = silu(gate) * up (Shazeer 2020)
return gated(silu)
