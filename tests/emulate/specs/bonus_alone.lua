return linear_attention { bonus = function(at) return 0.5 + 0.01 * at.i end }
