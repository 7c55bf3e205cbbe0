-- How many updates is a whole number.
return linear_attention { updates = 1.5 } -- error: 'updates' must be a whole number from 1 to 16, so many updates of the state by a token, got 1.5
