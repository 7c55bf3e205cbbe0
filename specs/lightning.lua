-- lightning.lua: lightning attention: head h of n decays by -8 h / n, less in later layers; depth is layer / layers (Qin et al. 2024)
return linear_attention {
  inputs = { depth = scalar("f32", { default = 0.0, range = { 0.0, 1.0 } }) },
  decay  = function(at, x) return -8.0 * at.h / at.n_h * (1.0 - x.depth) end,
}
