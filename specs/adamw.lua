-- adamw.lua: one step of AdamW (Loshchilov and Hutter 2019) on a list of tensors, decayed apart from the gradient. In place
-- where the results are left out; seed other than 0: 16-bit results are rounded at random.
return elementwise {
  list = true, over = { "n" },
  inputs = { lr = scalar("f32"), beta1 = scalar("f32", { default = 0.9 }), beta2 = scalar("f32", { default = 0.999 }),
             eps = scalar("f32", { default = 1e-8 }), decay = scalar("f32", { default = 0.01 }),
             bias1 = scalar("f32", { default = 1.0 }), bias2 = scalar("f32", { default = 1.0 }), -- 1 - beta1^t, 1 - beta2^t of f32 betas
             scale = scalar("f32", { default = 1.0 }), seed = scalar("i32", { default = 0 }) },
  operands = { p = tensor("float"), g = tensor("float"), m = tensor("float"), s = tensor("float") },
  results = { p_new = tensor("float", { alias = "p", dither = "seed" }), m_new = tensor("float", { alias = "m", dither = "seed" }),
              s_new = tensor("float", { alias = "s", dither = "seed" }) },
  forward = adamw_step("p_new"),
}
