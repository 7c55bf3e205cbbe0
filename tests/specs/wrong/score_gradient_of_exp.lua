-- fails: backward in kernels: the gradient of a score is
return attention { mask_mod = causal, score_mod = function(s) return s / (1.0 + exp(-s)) end }
