-- rope_half.lua: rotary positions on pairs (i, i + d/2) of q [b,t,h,d] and k [b,t,h_kv,d] (Su et al. 2021; half-split)
return rotary(half, rope_inputs(), rope_angle)
