-- error in file: 'folded' is a word of --problem
return attention {
  inputs = {
    dtype = scalar("f32"), -- error: 'dtype' is a word of --problem; use another name
    table = tensor("float", "folded"),
  },
  score_mod = function(s, at, x) return s * x.dtype + x.table(at.h) end,
}
