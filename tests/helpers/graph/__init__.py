"""Random graphs of sources and assets under random operations."""
