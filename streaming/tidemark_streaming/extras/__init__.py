"""Extras: packages that no other package imports (`tidemark_streaming.base.extra`)."""
