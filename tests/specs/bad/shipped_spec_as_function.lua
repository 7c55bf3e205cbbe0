return attention { query_mod = rope, mask_mod = causal } -- error: it is a shipped spec, not a function; `lathe show rope`
