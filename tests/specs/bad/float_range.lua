return linear_attention {
  inputs = { g = tensor("f32", "b", "h", "t", { range = { 0.0, "t" } }) }, -- error: option 'range' of floats is { least, most }
}
