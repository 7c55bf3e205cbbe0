softmax.online_fwd = nil
return attention {} -- error: 'online_fwd' must be a function, got nil
