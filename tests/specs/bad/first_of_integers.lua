return rowwise {
  forward = function(x, at)
    local order = rank(x)
    local places = placed(at.i, order) -- error: first fills a row of integers with an integer
    local halves = placed(at.i + 1, order) -- error: first fills a row of integers with an integer
    return { places = first(places, 4, -inf), halves = first(halves, 4, 1.5) }
  end,
}
