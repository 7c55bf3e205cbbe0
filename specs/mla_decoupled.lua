-- latent attention, absorbed (DeepSeek-V2), with its decoupled rotary elements in tensors of their own, q2 and k2, as caches keep them: k is
-- the latents alone, which are the values, too
local scale = 192 ^ -0.5 -- of the heads before they were absorbed, 128 + 64 elements, and not of d + d2
-- lathe run mla_decoupled --problem dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=512,d2=64
return attention { qk2 = true, v = "k", mask_mod = causal, scale = scale }
