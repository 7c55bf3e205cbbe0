-- short_conv_step.lua: a step of short_conv for one token x [b, c] of each sequence: s_0 to s_(TAPS - 2) [b, c] are the tokens before it, the last one the
-- nearest, state[:, k]; each takes the place of the one before where s_k_new is left out: in place
local TAPS, SILU = param("TAPS", 4), param("SILU", 1)
local operands, results = { x = tensor("float") }, { y = tensor("float") }
for k = 0, TAPS - 2 do operands["s_" .. k], results["s_" .. k .. "_new"] = tensor("float"), tensor("float", { alias = "s_" .. k }) end
return elementwise { over = { "b", "c" }, operands = operands, results = results,
  inputs = { weight = tensor("float", "c", TAPS), bias = tensor("float", "c", { optional = true }) },
  forward = function(v, at, p)
    local out, sum = {}, p.bias(at.c) + p.weight(at.c, TAPS - 1) * v.x
    for k = 0, TAPS - 2 do sum = sum + p.weight(at.c, k) * v["s_" .. k] end
    for k = 1, TAPS - 2 do out["s_" .. k - 1 .. "_new"] = v["s_" .. k] end
    out["s_" .. TAPS - 2 .. "_new"], out.y = v.x, short_conv_act(SILU)(sum)
    return out
  end,
}
