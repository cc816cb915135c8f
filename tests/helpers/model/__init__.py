"""The model in plain Python, and random inputs for it."""
