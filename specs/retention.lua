-- retention.lua: parallel form of retention (Sun et al. 2023): scores decayed by gamma_h^(q - kv), gamma_h = 1 - 2^(-5 - h), rows divided
-- by max(sum |s|, 1), which has no gradient
local normalise = online_func {
  online_rowscales = { r = 0.0 },
  online_fwd = function(s, row)
    local r = row.r + rowsum(abs(s))
    return s / max(r, 1.0), { r = r }, max(row.r, 1.0) / max(r, 1.0)
  end,
  online_fwd_epilogue = function(row) return 1.0, { n = max(row.r, 1.0) } end,
  forward = function(s, final) return s / detach(final.n) end,
  combine = function(part) return max(part.r, 1.0) / max(splitsum(part.r), 1.0), { r = splitsum(part.r) } end,
}
return attention { mask_mod = causal, online_func = normalise,
  score_mod = function(s, at) return s * exp2(log2(1.0 - exp2(-5.0 - at.h)) * (at.q - at.kv)) end }
