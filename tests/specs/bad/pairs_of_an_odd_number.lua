local function swap(lo, hi) return hi, lo end
return attention {
  query_mod = half(swap, 33), -- error: half(f, n) makes pairs of the first n elements: n is an even integer from 2 to 4096, got 33
}
