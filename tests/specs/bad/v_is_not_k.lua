return attention { v = "q" } -- error: 'v' may be "k", whose first d_v elements are then the values
