-- short_conv_back.lua: the gradient of short_conv's tokens without atomics, in their dtype: token_grad[t] = sum_k weight[TAPS - 1 - k] du[t + k], du = grad
-- silu'(u), grad that of y, u made again of 2 TAPS - 1 tokens. The backward pass of short_conv gives those of weight, bias and state
local TAPS, SILU = param("TAPS", 4), param("SILU", 1)
local inputs = short_conv_inputs(TAPS, false)
inputs.grad = tensor("float", "b", "t", "c")
local function du(p, at, t)
  return p.grad(at.b, t, at.c) * short_conv_slope(SILU, short_conv_sum(TAPS, p, at, t, short_conv_token))
end
return elementwise {
  over = { "b", "t", "c" }, inputs = inputs, results = { token_grad = tensor("float") },
  forward = function(v, at, p)
    local sum = p.weight(at.c, TAPS - 1) * du(p, at, at.t)
    for k = 1, TAPS - 1 do
      local t = min(at.t + k, at.n_t - 1)
      local later = lt(at.t + k, at.n_t) & ge(short_conv_place(p, at, t), k) -- of the same sequence
      sum = sum + p.weight(at.c, TAPS - 1 - k) * where(later, du(p, at, t), 0.0)
    end
    return sum
  end,
}
