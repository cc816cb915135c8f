"""A domain of one topic, as a user writes it."""
