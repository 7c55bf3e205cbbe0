local inputs = {
  bias = scalar("f32"), -- error: gradient of the input 'bias' has the name of the input 'dbias'
  dbias = scalar("f32"),
}
return attention { inputs = inputs, score_mod = function(s, at, x) return s + x.bias + x.dbias end }
