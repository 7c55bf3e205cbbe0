return attention {
  inputs = { doc = tensor("i32", "b", "kv") },
  mask_mod = function(at, x)
    return eq(x.doc(at.q), x.doc(at.b, at.kv)) -- error: input 'doc' has 2 dimensions (b, kv), got 1 index
  end,
}
