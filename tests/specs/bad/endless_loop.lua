local n = 0
while true do n = n + 1 end -- error: endless loop
return attention { mask_mod = causal }
