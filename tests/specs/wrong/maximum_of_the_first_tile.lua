-- fails: f32 = double: 'exp' leaves the range of f32
local wrong = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = function(s, r)
    local m = where(eq(r.m, -inf), detach(rowmax(s)), r.m)
    local p = exp(s - m)
    return p, { m = m, l = r.l + rowsum(p) }, 1.0
  end,
  online_fwd_epilogue = function(r) return 1.0 / r.l, { lse = r.m + log(r.l) } end,
  forward = function(s, final) return exp(s - final.lse) end,
}
return attention { mask_mod = causal, online_func = wrong }
