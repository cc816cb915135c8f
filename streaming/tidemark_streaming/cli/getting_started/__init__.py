"""Commands for getting started: new, demo, up, status, and down."""
