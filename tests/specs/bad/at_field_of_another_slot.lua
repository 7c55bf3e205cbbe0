return attention {
  query_mod = function(e, at) return e * at.kv end, -- error: 'at' has no field 'kv' here (b h h_kv q row i pos n_b n_h
}
