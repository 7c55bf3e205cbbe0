-- dropout.lua: attention whose weights are dropped with probability p, else multiplied by 1 / (1 - p) (dropout_p
-- of scaled_dot_product_attention); lse is that of all weights. Other seeds drop others; p = 0 is softmax itself.
local function keep(at, x) return ge(random(x.seed, at.b, at.h, at.q, at.kv), x.p) end
local function scale(at, x) return where(lt(x.p, 1.0), 1.0 / (1.0 - x.p), 0.0) end
return attention {
  inputs = { p = scalar("f32", { default = 0.1 }), seed = scalar("i32") },
  online_func = softmax_with_dropout(keep, scale),
}
