"""The domain shop: its events, and what is computed from them."""
