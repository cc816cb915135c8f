"""The events that benchmarks process, and what is computed from them."""
