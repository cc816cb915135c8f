"""Ways to cut arrivals into runs."""

from itertools import pairwise
from random import Random


def cuts(arrivals: int, seed: int, count: int) -> list[tuple[int, ...]]:
    """One by one, and as many others by chance, each as the numbers of arrivals of its runs.

    Args:
        arrivals: how many there are to cut.
        seed: of chance; the same gives the same cuts.
        count: how many others, or all that there are where these are fewer.
    """
    found: list[tuple[int, ...]] = [(1,) * arrivals]
    others = 2 ** max(arrivals - 1, 0) - 1
    chance = Random(seed)
    while len(found) <= min(count, others):
        places = [place for place in range(1, arrivals) if chance.random() < 0.5]
        cut = tuple(after - before for before, after in pairwise([0, *places, arrivals]))
        if cut not in found:
            found.append(cut)
    return found
