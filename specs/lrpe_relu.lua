-- lrpe_relu.lua: relu, then lrpe
return lrpe(relu)
