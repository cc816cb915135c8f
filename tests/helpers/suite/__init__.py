"""The test session itself, and the pages of the documents."""
