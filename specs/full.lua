-- full.lua: every query sees every key; softmax and scale 1/sqrt(d) are the defaults
return attention {}
