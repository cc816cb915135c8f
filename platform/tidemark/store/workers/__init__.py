"""Records of workers: which processes should run, which do run, and which one may do a piece of
work.

The records are in the warehouse, where all machines find them. A record is changed only by
comparing and swapping, so of several processes that want the same work exactly one gets it.
"""
