-- md_lrpe_3d.lua: lrpe of tokens on a grid of 3 dim(s), after l tokens without a place; md_lrpe(3, silu) has an activation
return md_lrpe(3)
