"""The report of a campaign."""

from dataclasses import dataclass, field
from statistics import median


@dataclass
class Report:
    """The result of a campaign.

    Args:
        seed: the random seed, which reproduces the kills.
        sent: the number of events.
        poison: the number of undecodable records.
        recovered: the seconds until each recovery, by kind of victim.
        wrong: a message for each fault.
    """

    seed: int
    sent: int = 0
    poison: int = 0
    recovered: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    wrong: list[str] = field(default_factory=list[str])

    @property
    def kills(self) -> int:
        """The number of kills with a recovery; two at once count as one."""
        return sum(len(times) for times in self.recovered.values())

    def add(self, kind: str, seconds: float) -> None:
        """Add a kill and its time to recovery."""
        self.recovered.setdefault(kind, []).append(seconds)

    def lines(self) -> list[str]:
        """Return the lines of a readable report: a table and the result."""
        said = [f"{'killed':<28}{'times':>6}{'p50':>9}{'worst':>9}"]
        every = [seconds for times in self.recovered.values() for seconds in times]
        rows = [*sorted(self.recovered.items()), *([("all", every)] if every else [])]
        for kind, times in rows:
            said.append(f"{kind:<28}{len(times):>6}{median(times):>7.1f} s{max(times):>7.1f} s")
        said.append(f"{self.sent:,} events and {self.poison:,} poison records; seed {self.seed}")
        said += [f"WRONG: {sentence}" for sentence in self.wrong]
        if not self.wrong:
            said.append("Every event was counted exactly once, and every table is whole.")
        return said
