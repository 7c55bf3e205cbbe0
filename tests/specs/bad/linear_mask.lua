return linear_attention { mask_mod = causal } -- error: unknown field 'mask_mod'
