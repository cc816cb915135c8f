"""The command line, `tidemark`. Commands import the engine's client only when they run, so that
help texts and usage errors appear at once."""

from tidemark_streaming.cli.app import app

__all__ = ["app"]
