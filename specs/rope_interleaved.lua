-- rope_interleaved.lua: rotary positions on pairs (2i, 2i + 1) of q [b,t,h,d] and k [b,t,h_kv,d] (Su et al. 2021)
return rotary(interleaved, rope_inputs(), rope_angle)
