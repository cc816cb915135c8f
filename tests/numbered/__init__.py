"""A domain for fault campaigns: numbered events, each of which can be identified."""
