-- glu.lua: y = sigmoid(gate) * up (Dauphin et al. 2017)
return gated(sigmoid)
