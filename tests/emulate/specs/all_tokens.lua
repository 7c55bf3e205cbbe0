local function swish(v) return silu(v) end
return linear_attention { causal = false, query_mod = swish, key_mod = swish,
  inputs = { gate = tensor('float', 'b', 'h', 't', 'd_v', { grad = true }) },
  output_mod = function(o, at, x) return o * sigmoid(x.gate(at.b, at.h, at.t, at.i)) end }
