"""Selection methods side by side: the same pools, a judge trained from scratch on each selection,
tests on data no method saw."""
