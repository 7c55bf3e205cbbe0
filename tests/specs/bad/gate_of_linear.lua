return linear_attention { gate = function(at) return -0.5 end } -- error: ; write decay, the logarithm of the gate
