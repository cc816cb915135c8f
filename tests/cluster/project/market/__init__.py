"""A market: orders and payments in files, clicks in a topic, and every kind of asset over them."""
