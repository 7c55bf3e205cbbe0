-- fails: steps = whole: where a sequence comes in parts
-- A part of a sequence is shorter than the whole.
return linear_attention { decay = function(at) return -1.0 / at.len_t end }
