"""Parse the windows of a scenario."""

from collections.abc import Callable, Sequence

from tidemark.define.windows import Calendar, Cumulating, Global, Session, Sliding, Tumbling, Window
from tidemark_streaming.scenario.read.reader import Node

_WINDOWS: dict[str, tuple[Callable[..., Window], Sequence[str], Sequence[str]]] = {
    "tumbling": (Tumbling, ("size",), ("offset",)),
    "sliding": (Sliding, ("size", "slide"), ("offset",)),
    "cumulating": (Cumulating, ("size", "step"), ("offset",)),
    "session": (Session, ("gap",), ()),
    "calendar": (Calendar, ("unit",), ("timezone",)),
    "global": (Global, (), ()),
}


def window(node: Node) -> Window:
    """Return the window that a node describes."""
    name, inner = node.choice("a window", _WINDOWS)
    make, required, optional = _WINDOWS[name]
    given = inner.fields(f"a {name} window", required, optional)
    if name == "calendar":
        texts = {key: value.text(f"the {key}") for key, value in given.items()}
    else:
        texts = {key: n.duration(f"the {key}", negative=True) for key, n in given.items()}
    with inner.locate_errors():
        return make(**texts)
