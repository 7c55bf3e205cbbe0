-- hstu.lua: weights silu(score) / n in place of a softmax, causal, with a learned bias by distance, whose last entry serves all larger ones; the
-- last targets[b] tokens are candidates, which see the history and themselves (HSTU, Zhai et al. 2024). n is len_kv where it is not given
local function length(at, x) return f32(where(gt(x.n, 0), x.n, max(at.len_kv, 1))) end
local silu_weights = online_func {
  online_rowscales = {},
  online_fwd = function(s) return silu(s), {}, 1.0 end,
  online_fwd_epilogue = function(r, at, x) return 1.0 / length(at, x), {} end,
  forward = function(s, final, at, x) return silu(s) / length(at, x) end,
  combine = function() return 1.0, {} end,
}
local function history(at, x) return lt(at.kv, at.len_kv - x.targets(at.b)) | eq(at.q, at.kv) end
return attention { mask_mod = both(causal, history), online_func = silu_weights,
  inputs = { n = scalar("i32", { optional = true }), targets = tensor("i32", "b", { optional = true }), bias = tensor("f32", "h", "distances", { grad = true, optional = true }) },
  score_mod = function(s, at, x) return s + x.bias(at.h, clamp(at.q - at.kv, 0, max(at.n_distances - 1, 0))) end }
