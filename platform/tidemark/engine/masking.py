"""Copies what a process says to its log, with a secret struck out.

Run by its path, as `masking.py NAME`, beside the process and until that ends; the secret is the
value of the environment's variable NAME, so that no list of processes shows it.
"""

import os
import signal
import sys

MASK = b"***"


def main() -> None:
    """Copy standard input to standard output, line by line as they come."""
    secret = os.environ[sys.argv[1]].encode()
    # A signal to the whole group ends the process, whose last words are still to be copied.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(line.replace(secret, MASK))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
