"""Run `make faults`: kills under load, then a check that every event was counted exactly once.

PYTHONPATH=tests python -m campaign --kills 1000 --minutes 60
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from campaign.home import own_settings
from campaign.run import Bounds, campaign


def main() -> int:
    """Run the command. Return the exit code, 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--rate", type=int, default=200, help="events a second")
    given = parser.parse_args()
    # The campaign stops its processes even if a signal ends it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    home = Path(tempfile.mkdtemp(prefix="tidemark-faults-"))
    _print(f"seed {given.seed}, home {home}")
    report = campaign(
        own_settings(home),
        None,
        Bounds(given.kills, given.minutes),
        seed=given.seed,
        rate=given.rate,
        tell=_print,
    )
    for line in report.lines():
        _print(line)
    if not report.wrong:
        shutil.rmtree(home, ignore_errors=True)
        return 0
    _print(f"Tables and logs are in {home}.")
    return 1


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
