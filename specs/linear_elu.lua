-- linear_elu.lua: the same with elu + 1 on q and k, and outputs divided by q times the sum of keys (Katharopoulos et al. 2020)
local function elu_plus_one(v) return where(gt(v, 0.0), v + 1.0, exp(min(v, 0.0))) end
return linear_attention { query_mod = elu_plus_one, key_mod = elu_plus_one, normalise = true }
