return linear_attention {
  inputs = {
    state = tensor("f32", "h"), -- error: 'state' cannot be the name of an input: it is an argument that linear_attention takes
    cu = tensor("i32", "b"), -- error: 'cu' cannot be the name of an input
  },
}
