"""The rivals: selectors made of one rule, without an inner problem."""
