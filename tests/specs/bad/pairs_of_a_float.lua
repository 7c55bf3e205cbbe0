local function swap(lo, hi) return hi, lo end
return attention {
  query_mod = chain(interleaved(swap, 32.0)), -- error: interleaved(f, n) makes pairs of the first n elements: n is an even integer
}
