-- rope_append.lua: rotary positions on pairs (i, i + d/2) of q [b,t,h,d] and k [b,t,h_kv,d], and k and v into a cache: token
-- (b, t) goes to slot(b, t) of k_cache and v_cache [slots,h_kv,d], nowhere where that is below 0. Of pages with tokens before
-- heads, [pages,page,h_kv,d], a slot is page * page size + row.
local function turned(x, c, s) return { lo = x.lo * c - x.hi * s, hi = x.hi * c + x.lo * s } end
local token, cache = tensor("float", "b", "t", "h_kv", half("i")), tensor("float", "slots", "h_kv", half("i"), { slot = "slot" })
return elementwise { inputs = rope_inputs(),
  { over = { "b", "t", "h", "i" }, operands = { q = tensor("float", "b", "t", "h", half("i")) },
    results = { q_out = tensor("float", "b", "t", "h", half("i"), { alias = "q" }) },
    forward = function(v, at, x) return { q_out = turned(v.q, rope_angle(at, x)) } end },
  { over = { "b", "t", "h_kv", "i" }, operands = { k = token, v = token, slot = tensor("i32", "b", "t") },
    results = { k_cache = cache, v_cache = cache },
    forward = function(v, at, x) return { k_cache = turned(v.k, rope_angle(at, x)), v_cache = { lo = v.v.lo, hi = v.v.hi } } end } }
