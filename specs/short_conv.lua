-- short_conv.lua: causal convolution over time, each channel by itself: y[t] = silu(bias + sum_k weight[TAPS - 1 - k] tokens[t - k]), as in Mamba, Gated
-- DeltaNet and FLA (SILU=0: without silu). Packed: `since` is a place in a
-- sequence and, beside a state, `seq` the number of that. state [seqs, TAPS - 1, c]: the tokens before
local TAPS = param("TAPS", 4)
local act = short_conv_act(param("SILU", 1))
return elementwise {
  over = { "b", "t", "c" }, inputs = short_conv_inputs(TAPS, true), results = { y = tensor("float") },
  forward = function(v, at, p) return act(short_conv_sum(TAPS, p, at, at.t, short_conv_token)) end,
}
