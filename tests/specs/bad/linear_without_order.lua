return linear_attention { -- error: 'reverse' goes with causal = true alone
  causal = false, reverse = true,
}
