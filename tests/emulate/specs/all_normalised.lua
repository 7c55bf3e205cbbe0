local function phi(v) return exp(0.5 * v) end
return linear_attention { causal = false, query_mod = phi, key_mod = phi, normalise = true }
