"""engines of the bilevel problem."""
