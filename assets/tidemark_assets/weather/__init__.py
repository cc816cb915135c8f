"""The weather of 2013 at New York's airports, as reported by their stations."""
