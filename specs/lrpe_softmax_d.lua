-- lrpe_softmax_d.lua: softmax over the features, by their log-sum-exp lse, then lrpe; the gradient of lse goes to what made it
return lrpe(over_d)
