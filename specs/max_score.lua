-- max_score.lua: causal, with the largest score of each row as a result, which has no gradient; what FlexAttention calls max_scores, and QK-clip
-- reads (Kimi Team 2025)
local function epilogue(r)
  local factor, finals = softmax_epilogue(r)
  return factor, { lse = finals.lse, max_score = r.m }
end
return attention {
  mask_mod    = causal,
  online_func = online_func { online_rowscales = softmax_states, online_fwd = softmax_step, forward = softmax_weight,
                              online_fwd_epilogue = epilogue, combine = softmax_combine },
}
