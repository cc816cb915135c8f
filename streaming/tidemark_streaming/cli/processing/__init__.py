"""Commands that compute windows."""
