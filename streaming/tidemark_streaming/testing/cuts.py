"""Ways to divide arrivals into runs."""

from itertools import pairwise
from random import Random


def random_cuts(arrivals: int, seed: int, count: int) -> list[tuple[int, ...]]:
    """Return divisions of arrivals into runs, each as the sizes of its runs. The first has one
    arrival per run; the others are random.

    Args:
        arrivals: the number of arrivals.
        seed: the seed of the random numbers; the same seed gives the same divisions.
        count: the number of random divisions; fewer if there are not that many.
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
