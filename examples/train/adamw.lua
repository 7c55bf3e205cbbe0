-- adamw.lua: AdamW (Loshchilov and Hutter 2019) on f32 weights, and a copy of them for the kernels
local state = tensor("f32", { grad = false })             -- nobody differentiates an optimizer
return elementwise {
  inputs   = { rate = scalar("f32"), decay = scalar("f32", { default = 0.01 }), step = scalar("f32") },
  over     = { "i" },
  operands = { p = state, g = tensor("float", { grad = false }), m = state, v = state },
  results  = { p1 = tensor("f32", { alias = "p" }), m1 = tensor("f32", { alias = "m" }), v1 = tensor("f32", { alias = "v" }), copy = tensor("float") },
  forward  = function(t, at, x)
    local m = 0.9 * t.m + 0.1 * t.g
    local v = 0.99 * t.v + 0.01 * t.g * t.g
    local unbiased = (m / (1.0 - 0.9 ^ x.step)) / (sqrt(v / (1.0 - 0.99 ^ x.step)) + 1e-8)
    local p = t.p - x.rate * (unbiased + x.decay * t.p)
    return { p1 = p, m1 = m, v1 = v, copy = p }
  end,
}
