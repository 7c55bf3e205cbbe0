-- adamw_master.lua: AdamW on master copies in f32, which also writes the weights w, in 16 bits: rounded from p_new
return elementwise {
  list = true, over = { "n" },
  inputs = { lr = scalar("f32"), beta1 = scalar("f32", { default = 0.9 }), beta2 = scalar("f32", { default = 0.999 }),
             eps = scalar("f32", { default = 1e-8 }), decay = scalar("f32", { default = 0.01 }),
             bias1 = scalar("f32", { default = 1.0 }), bias2 = scalar("f32", { default = 1.0 }), -- 1 - beta1^t, 1 - beta2^t of f32 betas
             scale = scalar("f32", { default = 1.0 }) },
  operands = { p = tensor("f32"), g = tensor("float"), m = tensor("f32"), s = tensor("f32") },
  results = { p_new = tensor("f32", { alias = "p" }), m_new = tensor("f32", { alias = "m" }), s_new = tensor("f32", { alias = "s" }),
              w = tensor("float") },
  forward = adamw_step("w"),
}
