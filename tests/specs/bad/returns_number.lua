-- error in file: return attention
return 3
