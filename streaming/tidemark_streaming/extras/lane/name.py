"""The name of lanes as an extra, for their command and the records of running commands."""

NAME = "lane"
