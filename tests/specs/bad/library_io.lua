local file = io.open("table.txt") -- error: unknown name 'io'
return attention { mask_mod = causal }
