-- act_gelu.lua: y = x (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel 2016), of any strides; in place where y is left out
return activation(gelu)
