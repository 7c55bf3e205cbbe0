-- short_conv_back.lua: the gradient of short_conv's tokens without atomics, in their dtype: token_grad[t] = sum_k weight[TAPS - 1 - k] du[t + k], du = grad
-- silu'(u), grad that of y, u made again of 2 TAPS - 1 tokens. The backward pass of short_conv gives those of weight, bias and state
local TAPS, SILU = param("TAPS", 4), param("SILU", 1)
local inputs = short_conv_inputs(TAPS, false)
inputs.grad = tensor("float", "b", "t", "c")
return elementwise {
  over = { "b", "t", "c" }, inputs = inputs, results = { token_grad = tensor("float") },
  forward = function(v, at, p) return short_conv_gradient(TAPS, SILU, p, at) end,
}
