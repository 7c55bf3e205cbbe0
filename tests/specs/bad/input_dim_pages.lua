return attention {
  inputs = {
    bias = tensor("f32", "pages"), -- error: input 'bias': 'pages' is a size or an argument of some calls of attention
    number = tensor("i32", "h", "cu_q"), -- error: 'cu_q' is a size or an argument of some calls
  },
}
