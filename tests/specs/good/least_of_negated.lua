-- least_of_negated.lua: the least and the largest of -x, y and z, in each way to write -x, whose minus ptxas may lose
-- (templates/common/ptx_negate.cuh); and where the compiler alone finds that it is -x, or - 4 x
return elementwise {
  over = { "n" },
  operands = { x = tensor("i32"), y = tensor("i32"), z = tensor("i32") },
  results = { least = tensor("i32"), largest = tensor("i32"), of_zero = tensor("i32"), of_product = tensor("i32"),
              of_sums = tensor("i32"), of_quotient = tensor("i32"), of_others = tensor("i32"), of_four = tensor("i32"),
              of_choice = tensor("i32"), of_ends = tensor("i32") },
  forward = function(v)
    return {
      least       = min(min(-v.x, v.y), v.z),
      largest     = max(v.z, max(v.y, -v.x)),
      of_zero     = min(v.z, min(v.y, 0 - v.x)),
      of_product  = max(max(v.x * -1, v.y), v.z),
      of_sums     = min(min(v.y, 3 - v.x - 3), v.z),
      of_quotient = max(max(v.y, v.x // -1), v.z),
      of_others   = min(min(v.y, v.z - (v.x + v.z)), v.z),
      of_four     = max(max(v.y, v.x * -4), v.z),
      of_choice   = min(v.z, where(lt(v.y, v.z - v.x - v.z), v.y, v.z - v.x - v.z)),
      of_ends     = min(clamp(v.y, -7, 2 * v.x - 3 * v.x), v.z),
    }
  end,
}
