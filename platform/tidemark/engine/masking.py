"""Copy the output of a process to its log, with a secret masked.

The command `masking.py NAME` runs in parallel with the process, until the process exits. The secret
is the value of the environment variable NAME, so it does not appear in the list of processes.
"""

import os
import signal
import sys

_MASK = b"***"


def main() -> None:
    """Copy standard input to standard output, line by line, with `***` in place of the secret."""
    secret = os.environ[sys.argv[1]].encode()
    # A signal to the process group ends the observed process. Its last lines must still be copied.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(line.replace(secret, _MASK))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
