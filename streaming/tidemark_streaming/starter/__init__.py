"""A domain to begin with: a small project that runs as it is, under names of one's own.

`project` is what each has; `files` and `kafka` what it has for its kind of source. They are a
project as it is written for the names of `choices.TEMPLATE`, not a language of templates: its code
is checked with all other code, and `write` puts other names in their place.
"""
