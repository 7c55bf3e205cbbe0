-- fails: online = whole row: the last first
-- The score of the newest key: a state that needs the tiles in ascending order. Kernels walk them from the last.
local newest = online_func {
  online_rowscales = { m = -inf, l = 0.0, g = 0.0 },
  online_fwd = function(s, r, at)
    local m = max(r.m, detach(rowmax(s)))
    local a, p = exp(r.m - m), exp(s - m)
    return p, { m = m, l = r.l * a + rowsum(p), g = rowsum(where(eq(f32(at.kv), rowmax(f32(at.kv))), s, 0.0)) }, a
  end,
  online_fwd_epilogue = function(r) return sigmoid(r.g) / r.l, { lse = r.m + log(r.l), g = r.g } end,
  forward = function(s, final) return exp(s - final.lse) * sigmoid(final.g) end,
}
return attention { mask_mod = causal, online_func = newest }
