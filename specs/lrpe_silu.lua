-- lrpe_silu.lua: silu, then lrpe
return lrpe(silu)
