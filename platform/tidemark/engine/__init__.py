"""The Spark Connect server that computes everything, and the way to a session on it."""
