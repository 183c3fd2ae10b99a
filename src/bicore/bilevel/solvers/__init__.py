"""solvers of the bilevel problem."""
