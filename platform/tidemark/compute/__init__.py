"""DataFrame-to-DataFrame steps that turn events into partials, and partials into rows of
windows."""
