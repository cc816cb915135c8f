"""The maximum depth of nested values, which bounds the stack that decoding a record takes."""

MAX_DEPTH = 100
"""The maximum depth of nested records, arrays and maps. Protobuf has the same limit for messages.
"""
