"""NEXMark, the benchmark of an online auction: persons, auctions and bids, and its 23 queries."""
