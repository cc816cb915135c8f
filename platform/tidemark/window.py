"""Windows for definitions: `from tidemark.window import Tumbling`."""

from tidemark.define.windows import Calendar, Cumulating, Global, Session, Sliding, Tumbling, Window

__all__ = ["Calendar", "Cumulating", "Global", "Session", "Sliding", "Tumbling", "Window"]
