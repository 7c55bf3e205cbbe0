-- t5_buckets.lua: the buckets of T5 by the logarithm of a distance: where() says that it is at least 16 there
return attention {
  inputs = { t = tensor("float", "h", "n_rel", { grad = true }) },
  score_mod = function(s, at, x)
    local n = max(at.q - at.kv, 0)
    local far = 16 + i32(log(f32(n) / 16.0) / log(128.0 / 16.0) * 16.0)
    return s + x.t(at.h, where(lt(n, 16), n, min(far, 31)))
  end,
}
