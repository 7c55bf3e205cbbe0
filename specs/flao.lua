-- flao.lua: linear attention over all tokens, times an output gate (flao of xopes)
return linear_attention {
  inputs     = { gate = tensor("float", "b", "h", "t", "d_v", { grad = true }) },
  causal     = false,
  scale      = 1.0,
  output_mod = function(o, at, x) return o * x.gate(at.b, at.h, at.t, at.i) end,
}
