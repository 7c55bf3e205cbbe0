-- Without a reader or the delta rule nothing reads the state before a token writes.
return linear_attention { -- error: 'read_first' needs delta or reader
  read_first = true,
}
