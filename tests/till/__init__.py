"""A domain with derived sources: the payments of orders."""
