-- prelude.lua: names that every spec may use, in the same language. Formulas: specs/README.md.

function causal(at) return ge(at.q, at.kv) end
function both(f, g) return function(at, x) return f(at, x) & g(at, x) end end
function either(f, g) return function(at, x) return f(at, x) | g(at, x) end end

-- A row whose scores are all -inf has m = -inf: subtracting 0 instead keeps exp(-inf - -inf) out.
local function finite(m) return where(eq(m, -inf), 0.0, m) end
-- 1 / z, and 1 where z = 0: the sum that it multiplies is 0 there.
local function inverse(z) return 1.0 / where(eq(z, 0.0), 1.0, z) end
-- log z, and -inf without a gradient where z = 0: scores that are all -inf have none.
local function log_of_sum(z) return where(eq(z, 0.0), -inf, log(where(eq(z, 0.0), 1.0, z))) end

local function softmax_step(s, r)                        -- scores of this tile, row state so far
  local m = max(r.m, detach(rowmax(s)))                  -- a stabiliser: no gradient through it
  local a = exp(r.m - finite(m))
  local p = exp(s - finite(m))
  return p, { m = m, l = r.l * a + rowsum(p) }, a        -- weights, new row state, factor for o
end
local function softmax_weight(s, final) return exp(s - finite(final.lse)) end

softmax = online_func {
  online_rowscales = { m = -inf, l = 0.0 },
  online_fwd = softmax_step,
  online_fwd_epilogue = function(r)                      -- factor for o, final_rowscales
    return inverse(r.l), { lse = finite(r.m) + log_of_sum(r.l) }
  end,
  forward = softmax_weight,                              -- weights again, from final_rowscales
  combine = function(final)                              -- split-KV: factor of each split's o, merged finals
    local m = detach(splitmax(final.lse))
    local lse = finite(m) + log(splitsum(exp(final.lse - finite(m))))
    return exp(final.lse - finite(lse)), { lse = lse }
  end,
}

-- softmax with a logit sink(at, x) that joins the denominator and has no value. No `combine`: the parts of a
-- split row would each count the sink.
function softmax_with_sink(sink)
  return online_func {
    online_rowscales = { m = -inf, l = 0.0 },
    online_fwd = softmax_step,
    online_fwd_epilogue = function(r, at, x)
      local c = sink(at, x)
      local m = max(r.m, detach(c))
      local z = r.l * exp(r.m - m) + exp(c - m)
      return exp(r.m - m) / z, { lse = m + log(z) }
    end,
    forward = softmax_weight,
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
