"""Faults of the product that tests must see: each is planted in a copy of the checkout, and the
tests that should see it are run there. `make mutants` prints which were not seen."""
