"""SVG shapes, and their colors.

The colors are Okabe and Ito's, which people with any color vision can distinguish. No meaning
depends on color alone. The picture has its own background, which is dark if the reader's system is
dark.
"""

from xml.etree.ElementTree import Element, SubElement, tostring

from tidemark_streaming.scenario.draw import classified_events

FONT = "ui-sans-serif, system-ui, 'DejaVu Sans', Verdana, sans-serif"
STYLE = f"""
text {{ font-family: {FONT}; fill: #1f2933; }}
.title {{ font-size: 16px; font-weight: 600; }}
.about, .tick, .legend {{ font-size: 11px; fill: #5b6572; }}
.number {{ font-size: 12px; font-weight: 600; }}
.clock {{ font-size: 11px; fill: #5b6572; }}
.label, .pane, .key {{ font-size: 11px; }}
.value {{ font-size: 12px; font-weight: 600; }}
.note {{ font-size: 11px; font-style: italic; fill: #5b6572; }}
.label, .note {{ paint-order: stroke; stroke: #ffffff; stroke-width: 3; stroke-opacity: 0.7; }}
.ground {{ fill: #ffffff; stroke: #d5dae1; }}
.grid, .row {{ stroke: #e8ebef; stroke-width: 1; fill: none; }}
.bound {{ stroke: #b6bec9; stroke-width: 1; stroke-dasharray: 2 3; fill: none; }}
.behind {{ fill: #1f2933; fill-opacity: 0.06; stroke: none; }}
.watermark {{ stroke: #1f2933; stroke-width: 2; fill: none; stroke-linejoin: round; }}
.on-time {{ fill: #0072b2; stroke: none; }}
.late {{ fill: #e69f00; stroke: none; }}
.some-late {{ fill: none; stroke: #e69f00; stroke-width: 2.5; }}
.too-late {{ fill: none; stroke: #d55e00; stroke-width: 2.5; stroke-linecap: round; }}
.none {{ fill: none; stroke: #5b6572; stroke-width: 1.5; stroke-dasharray: 2 2; }}
.again {{ fill: none; stroke: #5b6572; stroke-width: 2; }}
.bar {{ fill: #0072b2; fill-opacity: 0.14; stroke: #0072b2; }}
.bar.LATE {{ fill: #e69f00; fill-opacity: 0.2; stroke: #b97f00; }}
.bar.EARLY {{ fill: #009e73; fill-opacity: 0.14; stroke: #00805d; }}
.bar.open {{ stroke-dasharray: 5 3; }}
.bar.merged {{ fill: none; stroke: #8b95a3; stroke-dasharray: 2 3; }}
.EARLY-text {{ fill: #00805d; }}
.ON_TIME-text {{ fill: #00609a; }}
.LATE-text {{ fill: #9a6700; }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #e6edf3; }}
.about, .tick, .legend, .clock, .note {{ fill: #9aa5b1; }}
.label, .note {{ stroke: #12171e; }}
.ground {{ fill: #12171e; stroke: #333b45; }}
.grid, .row {{ stroke: #262d36; }}
.bound {{ stroke: #56606d; }}
.behind {{ fill: #e6edf3; fill-opacity: 0.07; }}
.watermark {{ stroke: #e6edf3; }}
.on-time {{ fill: #56b4e9; }}
.bar {{ fill: #56b4e9; stroke: #56b4e9; }}
.EARLY-text {{ fill: #3fc79d; }}
.ON_TIME-text {{ fill: #7cc7f2; }}
.LATE-text {{ fill: #f0b93a; }}
}}
"""
CLASSES = {
    classified_events.ON_TIME: "on-time",
    classified_events.LATE: "late",
    classified_events.TOO_LATE: "too-late",
    classified_events.SOME_LATE: "some-late",
    classified_events.NO_TIME: "none",
    classified_events.DUPLICATE: "again",
}


class Picture:
    """An SVG document under construction."""

    def __init__(self, title: str, about: str) -> None:
        self.root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img"})
        SubElement(self.root, "title").text = title
        SubElement(self.root, "desc").text = about
        SubElement(self.root, "style").text = STYLE

    def add_shape(self, tag: str, kind: str, **attributes: float | str) -> Element:
        """Add a shape of a CSS class, and return the shape. Numbers are rounded, and `_` in the
        name of an attribute stands for `-`."""
        named = {
            name.replace("_", "-"): _format_number(value) for name, value in attributes.items()
        }
        return SubElement(self.root, tag, {"class": kind, **named})

    def add_text(self, kind: str, x: float, y: float, text: str, anchor: str = "start") -> None:
        """Add a line of text with a CSS class. `anchor` is the part of the line that is at (x, y):
        `start`, `middle` or `end`."""
        self.add_shape("text", kind, x=x, y=y, text_anchor=anchor).text = text

    def add_text_parts(self, kind: str, x: float, y: float, parts: list[tuple[str, str]]) -> None:
        """Add a line of text that consists of parts: pairs of a CSS class, or "", and a text."""
        line = self.add_shape("text", kind, x=x, y=y)
        for part, text in parts:
            SubElement(line, "tspan", {"class": part} if part else {}).text = text

    def add_line(self, kind: str, *points: tuple[float, float]) -> None:
        """Add a line that connects the points, with a CSS class."""
        self.add_shape("path", kind, d=_path_data(*points))

    def add_mark(self, lateness: str, x: float, y: float) -> None:
        """Add an event: a dot, a diamond if it is late, a cross if it is too late."""
        kind = CLASSES[lateness]
        r = 5.0
        if lateness == classified_events.TOO_LATE:
            r = 4.2
            ends = _path_data((x - r, y - r), (x + r, y + r)) + _path_data(
                (x - r, y + r), (x + r, y - r)
            )
            self.add_shape("path", kind, d=ends)
        elif lateness in (classified_events.LATE, classified_events.SOME_LATE):
            r = 6 if lateness == classified_events.LATE else 5
            self.add_shape(
                "path", kind, d=_path_data((x - r, y), (x, y - r), (x + r, y), (x, y + r)) + "Z"
            )
            if lateness == classified_events.SOME_LATE:
                self.add_shape("circle", CLASSES[classified_events.ON_TIME], cx=x, cy=y, r=2.5)
        else:
            self.add_shape("circle", kind, cx=x, cy=y, r=r)

    def finish_document(self, width: float, height: float) -> str:
        """Return the document with its background."""
        ground = {"class": "ground", "x": "0.5", "y": "0.5", "rx": "8"}
        ground |= {"width": _format_number(width - 1), "height": _format_number(height - 1)}
        self.root.insert(3, Element("rect", ground))
        self.root.set("viewBox", f"0 0 {_format_number(width)} {_format_number(height)}")
        self.root.set("width", _format_number(width))
        self.root.set("height", _format_number(height))
        return tostring(self.root, encoding="unicode") + "\n"


def _path_data(*points: tuple[float, float]) -> str:
    return "M" + "L".join(f"{_format_number(x)} {_format_number(y)}" for x, y in points)


def _format_number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1f}".removesuffix(".0")
