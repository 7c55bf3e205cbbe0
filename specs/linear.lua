-- linear.lua: linear attention without a decay, S_t = S_(t-1) + k_t' v_t (Katharopoulos et al. 2020; base rule of xopes)
return linear_attention {}
