-- gate.lua: of a token and head, beta of the delta rule and the logarithm of the decay, from two numbers of a linear layer
return elementwise {
  over     = { "rows", "h" },
  operands = { a = tensor("float"), b = tensor("float"), a_log = tensor("f32", "h"), bias = tensor("f32", "h") },
  results  = { beta = tensor("f32"), g = tensor("f32") },
  forward  = function(v) return { beta = sigmoid(v.b), g = -exp(v.a_log) * softplus(v.a + v.bias) } end,
}
