return attention {
  query_mod = function(e, at) return e * at.kv end, -- error: 'at' has no field 'kv' here
}
