-- md_lrpe_2d.lua: lrpe of tokens on a grid of 2 dim(s), after l tokens without a place; md_lrpe(2, silu) has an activation
return md_lrpe(2)
