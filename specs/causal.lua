-- causal.lua: a query sees the keys up to its own position
return attention { mask_mod = causal }
