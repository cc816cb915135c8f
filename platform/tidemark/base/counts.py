"""Format counts in messages."""


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun: `1 row`, `1,204 rows`."""
    if count == 1:
        return f"{count:,} {noun}"
    return f"{count:,} {noun}s"
