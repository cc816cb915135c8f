"""DataFrame-to-DataFrame steps: events become partials, and partials become rows of windows."""
