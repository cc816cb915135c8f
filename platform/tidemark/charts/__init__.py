"""Draw charts of arrivals, windows and checks."""
