-- rope_append.lua: rotary positions pos(b, t) on pairs (i, i + d/2) of q [b,t,h,d] and k [b,t,h_kv,d], and k and v into a cache:
-- token (b, t) goes to slot(b, t) of k_cache and v_cache [slots,h_kv,d], nowhere where that is below 0. Of pages with tokens
-- before heads, [pages,page,h_kv,d], a slot is page * page size + row.
local function turned(p, at, x)
  local a = x.pos(at.b, at.t) * exp2(-log2(x.base) * at.i / at.n_i)
  return { lo = p.lo * cos(a) - p.hi * sin(a), hi = p.hi * cos(a) + p.lo * sin(a) }
end
local query, token = tensor("float", "b", "t", "h", half("i")), tensor("float", "b", "t", "h_kv", half("i"))
local cache = tensor("float", "slots", "h_kv", half("i"), { slot = "slot" })
return elementwise { inputs = { pos = tensor("i32", "b", "t"), base = scalar("f32", { default = 10000.0 }) },
  { over = { "b", "t", "h", "i" }, operands = { q = query }, forward = function(v, at, x) return { q_out = turned(v.q, at, x) } end,
    results = { q_out = tensor("float", "b", "t", "h", half("i"), { alias = "q" }) } },
  { over = { "b", "t", "h_kv", "i" }, operands = { k = token, v = token, slot = tensor("i32", "b", "t") },
    results = { k_cache = cache, v_cache = cache },
    forward = function(v, at, x) return { k_cache = turned(v.k, at, x), v_cache = { lo = v.v.lo, hi = v.v.hi } } end } }
