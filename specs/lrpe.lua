-- lrpe.lua: y = [x cos(s theta), x sin(s theta)], s the token's position (Qin et al. 2023, cosine form)
return lrpe()
