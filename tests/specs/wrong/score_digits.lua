-- fails: f32 = double: digits are lost on the way
-- A score of 1 beside 1e7 has no digit left.
return attention { score_mod = function(s) return (s + 1e7) - 1e7 end }
