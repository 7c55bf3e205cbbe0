-- lrpe_sigmoid.lua: sigmoid, then lrpe
return lrpe(sigmoid)
