return linear_attention { normalise = 1, causal = "yes" } -- error: 'normalise' must be true or false, got number -- error: 'causal' must be true or false, got string
