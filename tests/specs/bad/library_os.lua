local home = os.getenv("HOME") -- error: unknown name 'os'
return attention { mask_mod = causal }
