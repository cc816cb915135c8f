"""Find the windows that a commit, a replay, an erasure, or late events affect."""
