-- error in file: return attention
return { mask_mod = causal }
