-- lrpe_softmax_n.lua: softmax over the tokens, by their log-sum-exp lse, then lrpe; the gradient of lse goes to what made it
return lrpe(over_n)
