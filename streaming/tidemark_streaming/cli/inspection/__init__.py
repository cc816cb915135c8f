"""Commands that show events, windows and runs."""
