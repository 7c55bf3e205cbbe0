return attention {
  online_func = online_func {
    online_rowscales = softmax_states,
    online_fwd = softmax_step,
    online_fwd_epilogue = softmax_epilogue,
    forward = softmax_weight,
    combine = function(part)
      return exp(part.lse), { m = splitmax(part.m), l = splitsum(part.l) } -- error: there is no row value 'lse' here (l m)
    end,
  },
}
