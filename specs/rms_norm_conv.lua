-- rms_norm_conv.lua: short_conv of tokens that rms_norm has measured and nobody has written down: tokens * rstd * gain, rstd [b, t] a result of
-- rms_norm, whose backward pass takes its gradient as drstd. state holds tokens that are normalised
local TAPS = param("TAPS", 4)
local act, inputs = short_conv_act(param("SILU", 1)), short_conv_inputs(TAPS, true)
inputs.rstd = tensor("f32", "b", "t", { grad = true })
inputs.gain = tensor("float", "c", { default = 1.0, grad = true })
local function token(p, at, t) return p.tokens(at.b, t, at.c) * p.rstd(at.b, t) * p.gain(at.c) end
return elementwise {
  over = { "b", "t", "c" }, inputs = inputs, results = { y = tensor("float") },
  forward = function(v, at, p) return act(short_conv_sum(TAPS, p, at, at.t, token)) end,
}
