return linear_attention {}
