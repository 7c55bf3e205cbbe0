-- latent attention, absorbed (DeepSeek-V2): all query heads share one head of keys, 512 latents beside 64 rotary
-- elements, and values are the latents, k's own memory
local scale = 192 ^ -0.5 -- of the heads before they were absorbed, 128 + 64 elements, and not of d
-- lathe run mla --problem dtype=bf16,h=128,h_kv=1,q=1,kv=8192,d=576,d_v=512
return attention { v = "k", mask_mod = causal, scale = scale }
