-- A sum over all tokens has no order.
return linear_attention { updates = 2, causal = false } -- error: 'updates' goes with causal = true alone
