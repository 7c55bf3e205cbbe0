return attention {
  inputs = {
    a = tensor("i32", "kv", { default = 3.5 }), -- error: 'a': option 'default' is a whole number
    b = tensor("u8", "kv", { default = -1 }), -- error: 'b': option 'default' is a whole number
    c = scalar("i32", { default = 3e9 }), -- error: 'c': option 'default' is a whole number
    d = scalar("i32", { default = 0 / 0 }), -- error: 'd': option 'default' is a whole number
    e = scalar("i32", { default = -7.0 }),
    f = scalar("f32", { default = 3e9 }),
  },
}
