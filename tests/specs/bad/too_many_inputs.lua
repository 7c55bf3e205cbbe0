return attention { -- error: inputs: more than 16
  inputs = { n0 = scalar("f32"), n1 = scalar("f32"), n2 = scalar("f32"), n3 = scalar("f32"), n4 = scalar("f32"), n5 = scalar("f32"), n6 = scalar("f32"), n7 = scalar("f32"), n8 = scalar("f32"), n9 = scalar("f32"), n10 = scalar("f32"), n11 = scalar("f32"), n12 = scalar("f32"), n13 = scalar("f32"), n14 = scalar("f32"), n15 = scalar("f32"), n16 = scalar("f32"), },
}
