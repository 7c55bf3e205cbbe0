-- mlp.lua: y = gelu(x W1^T) W2: a feed-forward layer is attention over its hidden units, with W1 as keys and W2 as values
return attention { scale = 1.0, online_func = elementwise_weights(gelu) }
