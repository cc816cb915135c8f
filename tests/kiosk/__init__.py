"""A domain whose transforms are tried by scenarios."""
