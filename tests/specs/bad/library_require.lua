local util = require("util") -- error: unknown name 'require'
return attention { mask_mod = causal }
