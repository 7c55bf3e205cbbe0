-- Without a reader or the delta rule nothing reads the state before a token writes.
return linear_attention { -- error: 'read_first' goes with delta or reader alone
  read_first = true,
}
