"""What needs a person's attention in a home, computed once for all who show it.

`tidemark status`, the live page, the metrics, the alerts and Dagster's checks show the same list.
"""
