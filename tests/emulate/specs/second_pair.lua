-- latent attention whose rotary elements are a pair of their own, as some caches keep them
return attention { qk2 = true, v = "k", mask_mod = causal, scale = 192 ^ -0.5 }
