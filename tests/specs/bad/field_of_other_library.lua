return attention { causal = true, mask = causal, sm_scale = 1.0 } -- error: write mask_mod = causal -- error: ; write mask_mod -- error: ; write scale
