"""The identity of a definition: its parts, and a fingerprint of them."""
