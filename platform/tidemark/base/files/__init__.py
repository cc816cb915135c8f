"""Files on this machine: atomic, locked, and private."""
