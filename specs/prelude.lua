-- prelude.lua: names that every spec may use, in the same language. Formulas: specs/reference/operations.md.

function causal(at) return ge(at.q, at.kv) end
function both(f, g) return function(at, x) return f(at, x) & g(at, x) end end
function either(f, g) return function(at, x) return f(at, x) | g(at, x) end end

-- A row whose scores are all -inf has m = -inf: subtracting 0 instead keeps exp(-inf - -inf) out.
function finite(m) return where(eq(m, -inf), 0.0, m) end
-- 1 / z, and 1 where z = 0: the sum that it multiplies is 0 there.
function inverse(z) return 1.0 / where(eq(z, 0.0), 1.0, z) end
-- log z, and -inf without a gradient where z = 0: scores that are all -inf have none.
function log_of_sum(z) return where(eq(z, 0.0), -inf, log(where(eq(z, 0.0), 1.0, z))) end

function softmax_step(s, r)                              -- scores of this tile, row state so far
  local m = max(r.m, detach(rowmax(s)))                  -- a stabiliser: no gradient through it
  local a = exp(r.m - finite(m))
  local p = exp(s - finite(m))
  return p, { m = m, l = r.l * a + rowsum(p) }, a        -- weights, new row state, factor for o
end
function softmax_weight(s, final) return exp(s - finite(final.lse)) end -- weights again, from final_rowscales

-- The parts of softmax are public: a variant takes what it needs of softmax_states, softmax_step, softmax_epilogue,
-- softmax_weight and softmax_combine, and finite, inverse and log_of_sum.
softmax_states = { m = -inf, l = 0.0 }
function softmax_epilogue(r)                             -- factor for o, final_rowscales
  return inverse(r.l), { lse = finite(r.m) + log_of_sum(r.l) }
end

function softmax_combine(part)                           -- parts of a row computed apart: factor of each part's o, merged state
  local m = detach(splitmax(part.m))
  local a = exp(part.m - finite(m))
  return a, { m = m, l = splitsum(part.l * a) }
end
softmax = online_func { online_rowscales = softmax_states, online_fwd = softmax_step, forward = softmax_weight,
                        online_fwd_epilogue = softmax_epilogue, combine = softmax_combine }

-- softmax with a logit sink(at, x) in the denominator, without a value. Parts are merged before the epilogue: it counts once.
function softmax_with_sink(sink)
  return online_func {
    online_rowscales = softmax_states,
    online_fwd = softmax_step,
    online_fwd_epilogue = function(r, at, x)
      local c = sink(at, x)
      local m = max(r.m, detach(c))
      local z = r.l * exp(r.m - m) + exp(c - m)
      return exp(r.m - m) / z, { lse = m + log(z) }
    end,
    forward = softmax_weight, combine = softmax_combine,
  }
end

-- Weights that need no row state: f(score), as in sigmoid and relu attention.
function elementwise_weights(f)
  return online_func {
    online_rowscales = {},
    online_fwd = function(s) return f(s), {}, 1.0 end,
    online_fwd_epilogue = function() return 1.0, {} end,
    forward = function(s) return f(s) end,
    combine = function() return 1.0, {} end,
  }
end

-- Elementwise: y = f(x), of one to four dims; in place where y is left out.
function activation(f)
  return elementwise {
    over = { "a", "b", "rows", "n" },
    operands = { x = tensor("float") },
    results = { y = tensor("float", { alias = "x" }) },
    forward = function(v) return f(v.x) end,
  }
end

-- y = f(gate) * up
function gated(f)
  return elementwise {
    over = { "a", "b", "rows", "n" },
    operands = { gate = tensor("float"), up = tensor("float") },
    results = { y = tensor("float") },
    forward = function(v) return f(v.gate) * v.up end,
  }
end

-- Rotary positions on pairs of q and k, in one launch, in place where q_out and k_out are left out. `pairs` is half or
-- interleaved; angle(at, x) is that of pair at.i of the token at.t.
function rotary(pairs, inputs, angle)
  local function rotation(name, heads)
    local result = name .. "_out"
    return {
      over = { "b", "t", heads, "i" },
      operands = { [name] = tensor("float", "b", "t", heads, pairs("i")) },
      results = { [result] = tensor("float", "b", "t", heads, pairs("i"), { alias = name }) },
      forward = function(v, at, x)
        local c, s = angle(at, x)
        local lo, hi = v[name].lo, v[name].hi
        return { [result] = { lo = lo * c - hi * s, hi = hi * c + lo * s } }
      end,
    }
  end
  return elementwise { inputs = inputs, rotation("q", "h"), rotation("k", "h_kv") }
end

-- The inputs and the angle of rotary(...): position * base^(-i / pairs). A position is at.t + offset, or pos where it is given.
local COMPUTED = -2147483648
function rope_inputs()
  return { pos = tensor("i32", "b", "t", { default = COMPUTED }), offset = scalar("i32", { default = 0 }),
           base = scalar("f32", { default = 10000.0 }) }
end
function rope_angle(at, x)
  local given = x.pos(at.b, at.t)
  local position = where(eq(given, COMPUTED), at.t + x.offset, given)
  local angle = position * exp2(-log2(x.base) * at.i / at.n_i)
  return cos(angle), sin(angle)
end

-- Linearised relative positions, cosine form: act(x) times cosines, then times sines: twice the features. With over_d or over_n
-- for act: softmax over the features or over the tokens, by the operand lse: the log-sum-exp of x over them.
local function itself(x) return x end
over_d, over_n = { lse = { "b", "h", "n" } }, { lse = { "b", "h", "d" } }
local function lrpe_map(inputs, angle, act)
  local operands, f = { x = tensor("float") }
  if act == over_d or act == over_n then
    operands.lse = tensor("f32", act.lse[1], act.lse[2], act.lse[3])
    f = function(v) return exp(v.x - where(eq(v.lse, -inf), 0.0, v.lse)) end
  else
    local g = act or itself
    f = function(v) return g(v.x) end
  end
  return elementwise {
    over = { "b", "h", "n", "d" },
    inputs = inputs,
    operands = operands,
    results = { y = tensor("float", "b", "h", "n", half("d")) },
    forward = function(v, at, x)
      local a, t = f(v), angle(at, x)
      return { y = { lo = a * cos(t), hi = a * sin(t) } }
    end,
  }
end

function lrpe(act)
  local inputs = { theta = tensor("float", "h", "d", { grad = true }), offset = scalar("i32", { default = 0 }) }
  return lrpe_map(inputs, function(at, x) return (at.n + x.offset) * x.theta(at.h, at.d) end, act)
end

-- Tokens on a grid of `axes` dims, the last fastest, with n_2 .. n_axes points; the first l tokens have angle 0. Features
-- come in blocks of e, one for each axis, the slowest first; e is ceil(d / axes) where it is 0.
function md_lrpe(axes, act)
  local inputs = { theta = tensor("float", "h", "e_dim", { grad = true }), l = scalar("i32", { default = 0 }),
                   e = scalar("i32", { default = 0 }) }
  for k = 2, axes do inputs["n_" .. k] = scalar("i32", { range = { 1, 1 << 24 } }) end
  local function angle(at, x)
    local e = where(eq(x.e, 0), (at.n_d + (axes - 1)) // axes, x.e)
    local axis, rest, index = at.d // e, max(at.n - x.l, 0), 0
    for k = axes, 2, -1 do
      local n = x["n_" .. k]
      index = where(eq(axis, k - 1), rest % n, index)
      rest = rest // n
    end
    index = where(eq(axis, 0), rest, index)
    return index * x.theta(at.h, at.d % e)
  end
  return lrpe_map(inputs, angle, act)
end

-- One step of AdamW: p, and the running means m of the gradient and s of its square; bias1 and bias2 correct their starts at 0. Any
-- other name gets the new p, too.
function adamw_step(other)
  return function(v, at, x)
    local g = v.g * x.scale
    local m = x.beta1 * v.m + (1.0 - x.beta1) * g
    local s = x.beta2 * v.s + (1.0 - x.beta2) * g * g
    local p = v.p * (1.0 - x.lr * x.decay) - x.lr * (m / x.bias1) / (sqrt(s / x.bias2) + x.eps)
    return { p_new = p, m_new = m, s_new = s, [other] = p }
  end
end

-- Packed sequences: starts(i) is where sequence i of n begins, starts(n) their total; they do not fall. The one that `at` lies in:
-- the last that begins there or before, so never one without tokens. For n below 2^20.
function packed_sequence(starts, n, at)
  local low = 0
  for k = 19, 0, -1 do
    local next = low + (1 << k)
    low = where(lt(next, n) & le(starts(min(next, n)), at), next, low)
  end
  return low
end

-- softmax whose weights count only where keep(at, x) holds, times scale(at, x), one value for a head: their sum, and so lse, is
-- that of all of them.
function softmax_with_dropout(keep, scale)
  return online_func {
    online_rowscales = softmax_states,
    online_fwd = function(s, r, at, x)
      local w, state, factor = softmax_step(s, r)
      return where(keep(at, x), w, 0.0), state, factor
    end,
    online_fwd_epilogue = function(r, at, x)
      local factor, finals = softmax_epilogue(r)
      return factor * scale(at, x), finals
    end,
    forward = function(s, final, at, x) return softmax_weight(s, final) * where(keep(at, x), scale(at, x), 0.0) end,
    combine = softmax_combine,
  }
end

-- softmax whose weights are multiplied by scale(at, x), of the pair, behind their sum: lse is that of softmax itself.
function softmax_times(scale)
  return online_func {
    online_rowscales = softmax_states,
    online_fwd = function(s, r, at, x)
      local w, state, factor = softmax_step(s, r)
      return w * scale(at, x), state, factor
    end,
    online_fwd_epilogue = softmax_epilogue,
    forward = function(s, final, at, x) return softmax_weight(s, final) * scale(at, x) end,
    combine = softmax_combine,
  }
end

-- log(1 + e^v) in any range; and a vector of length 1, in the vector mods of linear attention and attention.
function softplus(v) return max(v, 0.0) + log(1.0 + exp(-abs(v))) end
function unit(v) return v * rsqrt(dimsum(v * v) + 1e-6) end

-- Neighbourhoods on a grid of `axes` dims, the last fastest, with n_2 .. n_axes points (NATTEN): along axis k a query sees window_k points
-- around its own, moved inwards at the edges, of those that are multiples of dilation_k away from it.
function neighbour_inputs(axes)
  local inputs = {}
  for k = 1, axes do
    if k > 1 then inputs["n_" .. k] = scalar("i32", { range = { 1, 1 << 24 } }) end
    inputs["window_" .. k] = scalar("i32", { default = 7, range = { 1, 1 << 24 } })
    inputs["dilation_" .. k] = scalar("i32", { default = 1, range = { 1, 1 << 24 } })
  end
  return inputs
end
local function near_along(i, j, n, step, window)
  local first = clamp(i // step - window // 2, 0, max((n - 1 - i % step) // step + 1 - window, 0))
  return eq(i % step, j % step) & ge(j // step, first) & lt(j // step, first + window)
end
function neighbours(axes)                                -- near(q, kv, n, x): point q sees point kv of n
  local function near(i, j, n, x) return near_along(i, j, n, x.dilation_1, x.window_1) end
  for k = 2, axes do
    local slower = near
    near = function(i, j, n, x)
      local here = x["n_" .. k]
      return slower(i // here, j // here, n // here, x) & near_along(i % here, j % here, here, x["dilation_" .. k], x["window_" .. k])
    end
  end
  return near
end

-- Causal convolution over time by channel (short_conv): tokens [b, t, c], weight [c, taps], the last tap for the token itself; state [seqs, taps - 1, c]:
-- the tokens before each sequence. Of packed ones `since` has places in sequences and, beside a state, `seq` their numbers; else batch b is sequence b.
function short_conv_inputs(taps, learned)
  return {
    tokens = tensor("float", "b", "t", "c", { grad = learned }), weight = tensor("float", "c", taps, { grad = learned }),
    bias = tensor("float", "c", { optional = true, grad = learned }), state = tensor("float", "seqs", taps - 1, "c", { optional = true, grad = learned }),
    since = tensor("i32", "b", "t", { range = { -1, "t" }, default = -1 }), seq = tensor("i32", "b", "t", { range = { -1, "seqs" }, default = -1 }),
  }
end
function short_conv_place(p, at, t)                      -- of token t in its sequence
  local since = p.since(at.b, t)
  return where(lt(since, 0), t, since)
end
function short_conv_token(p, at, t) return p.tokens(at.b, t, at.c) end
function short_conv_sum(taps, p, at, t, token)           -- at token t; token(p, at, t) is what a token is worth
  local place, seq = short_conv_place(p, at, t), p.seq(at.b, t)
  local sum = p.bias(at.c) + p.weight(at.c, taps - 1) * token(p, at, t)
  for k = 1, taps - 1 do
    local before = p.state(where(lt(seq, 0), at.b, seq), clamp(taps - 1 + place - k, 0, taps - 2), at.c)
    sum = sum + p.weight(at.c, taps - 1 - k) * where(ge(place, k), token(p, at, max(t - k, 0)), before)
  end
  return sum
end
local function silu_slope(u) local s = sigmoid(u) return s * (1.0 + u * (1.0 - s)) end
function short_conv_gradient(taps, on, p, at)            -- of a token, p.grad being that of y
  local function du(t) return p.grad(at.b, t, at.c) * short_conv_slope(on, short_conv_sum(taps, p, at, t, short_conv_token)) end
  local sum = p.weight(at.c, taps - 1) * du(at.t)
  for k = 1, taps - 1 do
    local t = min(at.t + k, at.n_t - 1)
    local later = lt(at.t + k, at.n_t) & ge(short_conv_place(p, at, t), k) -- of the same sequence
    sum = sum + p.weight(at.c, taps - 1 - k) * where(later, du(t), 0.0)
  end
  return sum
end
function short_conv_act(on) return ({ [0] = itself, silu })[on] end
function short_conv_slope(on, u) return ({ [0] = 1.0, silu_slope(u) })[on] end
