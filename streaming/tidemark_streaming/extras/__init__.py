"""Extras: optional parts of Tidemark, one package for each.

No other package imports them, so an extra can be removed (`tidemark_streaming.base.extra`).
"""
