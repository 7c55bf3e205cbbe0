-- lion.lua: one step of Lion (Chen et al. 2023) on a list of tensors: p by the sign, decayed apart from it; sign(0) = 0.
-- In place where p_new and m_new are left out; seed other than 0: 16-bit results are rounded at random.
local function sign(a) return where(gt(a, 0.0), 1.0, where(lt(a, 0.0), -1.0, 0.0)) end
return elementwise {
  list = true, over = { "n" },
  inputs = { lr = scalar("f32"), beta1 = scalar("f32", { default = 0.9 }), beta2 = scalar("f32", { default = 0.99 }),
             decay = scalar("f32", { default = 0.0 }), scale = scalar("f32", { default = 1.0 }), seed = scalar("i32", { default = 0 }) },
  operands = { p = tensor("float"), g = tensor("float"), m = tensor("float") },
  results = { p_new = tensor("float", { alias = "p", dither = "seed" }), m_new = tensor("float", { alias = "m", dither = "seed" }) },
  forward = function(v, at, x)
    local g = v.g * x.scale
    local p = v.p * (1.0 - x.lr * x.decay) - x.lr * sign(x.beta1 * v.m + (1.0 - x.beta1) * g)
    return { p_new = p, m_new = x.beta2 * v.m + (1.0 - x.beta2) * g }
  end,
}
