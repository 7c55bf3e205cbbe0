-- md_lrpe_1d.lua: lrpe of tokens on a grid of 1 dim(s), after l tokens without a place; md_lrpe(1, silu) has an activation
return md_lrpe(1)
