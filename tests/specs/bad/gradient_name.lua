local inputs = {
  bias = scalar("f32"),
  dbias = scalar("f32"), -- error: the input 'dbias' has the name of the gradient of the input 'bias'; rename one
}
return attention { inputs = inputs, score_mod = function(s, at, x) return s + x.bias + x.dbias end }
