return attention { inputs = tensor("f32", "h") } -- error: 'inputs' must be a table: inputs = { name = tensor
