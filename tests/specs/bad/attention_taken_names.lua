return attention {
  inputs = {
    q2 = tensor("f32", "h"), -- error: 'q2' cannot be the name of an input: it is an argument that attention takes
    part_o = tensor("f32", "b", "kv"), -- error: 'part_o' cannot be the name of an input
    length = tensor("i32", "b", "len_kv"), -- error: 'len_kv' is a size or an argument of some calls of attention
    table = tensor("i32", "b", "d2"), -- error: 'd2' is a size or an argument of some calls
    of_part = tensor("i32", "parts"), -- error: 'parts' is a size or an argument of some calls
  },
}
