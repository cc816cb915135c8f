"""Draw a scenario as text and as SVG."""
