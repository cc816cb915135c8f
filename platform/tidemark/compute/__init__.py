"""From DataFrame to DataFrame: events, partials, and the rows of windows."""
