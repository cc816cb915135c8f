"""What a campaign found."""

from dataclasses import dataclass, field
from statistics import median


@dataclass
class Report:
    """What a campaign found.

    Args:
        seed: chooses the same kills again.
        sent: events that there were, and `poison` records.
        recovered: by kind of victim, the seconds until each recovery.
        wrong: what is wrong, each in a sentence.
    """

    seed: int
    sent: int = 0
    poison: int = 0
    recovered: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    wrong: list[str] = field(default_factory=list[str])

    @property
    def kills(self) -> int:
        """Kills from which it recovered; of two at once, one."""
        return sum(len(times) for times in self.recovered.values())

    def add(self, kind: str, seconds: float) -> None:
        """A kill, and how long it took to recover."""
        self.recovered.setdefault(kind, []).append(seconds)

    def lines(self) -> list[str]:
        """For a person: a table, and the verdict."""
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
