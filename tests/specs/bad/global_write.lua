window = 256 -- error: 'window' would be a global
return attention { mask_mod = causal }
