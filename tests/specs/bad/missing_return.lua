-- error in file: return attention
local mask = causal
attention { mask_mod = mask }
