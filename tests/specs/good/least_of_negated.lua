-- least_of_negated.lua: the least and the largest of -x, y and z, in each way to write -x, whose minus ptxas may lose
-- (templates/common/ptx_negate.cuh).
return elementwise {
  over = { "n" },
  operands = { x = tensor("i32"), y = tensor("i32"), z = tensor("i32") },
  results = { least = tensor("i32"), largest = tensor("i32"), of_zero = tensor("i32"), of_product = tensor("i32") },
  forward = function(v)
    return {
      least      = min(min(-v.x, v.y), v.z),
      largest    = max(v.z, max(v.y, -v.x)),
      of_zero    = min(v.z, min(v.y, 0 - v.x)),
      of_product = max(max(v.x * -1, v.y), v.z),
    }
  end,
}
