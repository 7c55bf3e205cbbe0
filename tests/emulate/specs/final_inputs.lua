-- A final of inputs beside one that is -inf in rows without live pairs.
return attention {
  inputs = { gate = tensor("float", "b", "h", "q", { grad = true }), bias = tensor("f32", "h", { grad = true }) },
  mask_mod = causal,
  online_func = online_func {
    online_rowscales = softmax_states,
    online_fwd = softmax_step,
    online_fwd_epilogue = function(r, at, x)
      local factor, final = softmax_epilogue(r)
      local c = 1.0 + sigmoid(x.gate(at.b, at.h, at.row))
      return factor * c, { lse = final.lse, c = c, n = c * x.bias(at.h) }
    end,
    forward = function(s, final) return softmax_weight(s, final) * final.c end,
  },
}
