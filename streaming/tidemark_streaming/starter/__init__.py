"""Templates for a new domain: a small project that runs as it is, with the user's own names.

`project` has the files of every project; `files` and `kafka` add files for one kind of source. The
templates are a valid project with the names of `choices.TEMPLATE`, not text in a template language:
their code is checked like all other code, and `write` replaces the names.
"""
