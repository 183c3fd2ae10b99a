"""strategies of the bilevel problem."""
