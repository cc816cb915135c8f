"""Format counts in messages."""


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: `1 row`, `1,204 rows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
