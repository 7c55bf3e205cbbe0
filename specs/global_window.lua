-- global_window.lua: a window of `window` keys to either side, and `globals` first tokens that see all and are seen by all (Longformer, Beltagy
-- et al. 2020; BigBird without its random keys)
local function near(at, x) return le(abs(at.q - at.kv), x.window) end
local function global(at, x) return lt(at.q, x.globals) | lt(at.kv, x.globals) end
return attention {
  inputs   = { window = scalar("i32", { default = 256 }), globals = scalar("i32", { default = 1 }) },
  mask_mod = either(global, near),
}
