return linear_attention {
  inputs = { beta = tensor("f32", "h", "d") },
  delta  = function(at, x) return x.beta(at.h, at.i) end, -- error: 'at' has no field 'i' here (b h pos n_b n_h d d_v t h_k n_h_k len_t)
}
