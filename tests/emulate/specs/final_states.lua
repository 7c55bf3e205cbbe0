-- Weights are all 0 in rows whose scores are below 0, and in rows without live pairs.
return attention {
  inputs = { gate = tensor("float", "b", "h", "q", { grad = true }) },
  mask_mod = causal,
  online_func = online_func {
    online_rowscales = { n = 0.0 },
    online_fwd = function(s, r) return relu(s), { n = r.n + rowsum(s) }, 1.0 end,
    online_fwd_epilogue = function(r, at, x)
      local gate = x.gate(at.b, at.h, at.row)
      return 1.0, { c = gate, n = sin(gate) * (r.n + 1.0) }
    end,
    forward = function(s) return relu(s) end,
  },
}
