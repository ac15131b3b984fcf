"""The command `criba`."""

import signal
import sys

from ._criba import run_command


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command has handlers of its own
    sys.exit(run_command(["criba", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
