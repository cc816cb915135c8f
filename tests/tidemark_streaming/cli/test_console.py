"""Test how the command line shows values."""

from tidemark_streaming.cli.console import format_keys


def test_a_null_key_is_shown_like_in_sql() -> None:
    assert format_keys({"carrier": None, "origin": "JFK"}) == "carrier=null, origin=JFK"
