"""The name of the extra, for its command and for the records of running commands."""

NAME = "lane"
