# my spec -- error: a comment begins with --
return attention {}
