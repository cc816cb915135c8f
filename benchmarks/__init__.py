"""Speed, shown beside peers that are measured in the same run."""
