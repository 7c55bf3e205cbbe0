-- md_lrpe_silu.lua: lrpe of tokens on a grid of 2 dim(s), with silu fused
return md_lrpe(2, silu)
