"""The events that benchmarks process, and the windows that they compute."""
