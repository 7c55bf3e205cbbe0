-- byte_order_mark.lua: some editors put one in front
return rowwise { forward = function(x) return x * 0.5 end }
