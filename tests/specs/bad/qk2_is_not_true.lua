return attention { qk2 = 64 } -- error: 'qk2' may be true, for a second pair of arguments, q2 and k2
