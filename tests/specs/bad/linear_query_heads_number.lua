-- How many heads is a whole number.
return linear_attention { query_heads = 0 } -- error: 'query_heads' must be a whole number from 1 to 32, so many heads of q that read each
