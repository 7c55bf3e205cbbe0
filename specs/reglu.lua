-- reglu.lua: y = relu(gate) * up (Shazeer 2020)
return gated(relu)
