"""A domain with one topic, as a user writes it."""
