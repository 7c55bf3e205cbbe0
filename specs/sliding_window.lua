-- sliding_window.lua: causal, the last `window` keys only
local function near(at, x) return lt(at.q - at.kv, x.window) end
return attention {
  inputs   = { window = scalar("i32", { default = 1024 }) },
  mask_mod = both(causal, near),
}
