return attention { inputs = { copy = scalar('i32'), part = scalar('i32') }, mask_mod = function(at, x)
  local a, b = at.q % x.copy // x.part, at.kv % x.copy // x.part
  local clean_q, clean_kv = ge(at.q, x.copy), ge(at.kv, x.copy)
  return (eq(a, b) & ~(clean_q & ~clean_kv) & ~(~clean_q & clean_kv)) | (gt(a, b) & clean_kv)
    | (gt(at.h, 0) & clean_kv & lt(b, 2))
end }
