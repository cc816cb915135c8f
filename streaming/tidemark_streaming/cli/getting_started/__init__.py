"""Commands to start: new, demo, up, status, and down."""
