"""The times of get_many and put_many beside those of the same work in Rust, in turns.

    python python/benches/times.py [ROUNDS]

Needs the wheel of `pip install ./python` in this Python (that of python/check is slower), and the Rust toolchain. A store has a million keys of 16 bytes with values of 32; put_many
writes them, get_many looks up 1,000 absent keys a call. Each round has both sides, each in a process and a store of its
own. Prints each round, and the medians of times and of the rounds' ratios.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import criba

PAIRS = 1_000_000
CALLS = 301
KEYS = 1000
ROOT = Path(__file__).resolve().parents[2]


def key(number):
    """The same keys as in times.rs."""
    return b"%016x" % (number * 0x9E3779B97F4A7C15 % 2**64)


def put(path):
    pairs = [(key(number), b"v" * 32) for number in range(PAIRS)]
    with criba.open(path) as db:
        began = time.perf_counter_ns()
        db.put_many(pairs)
        nanos = time.perf_counter_ns() - began
        db.compact()
    return nanos


def get(path):
    times = []
    with criba.open(path) as db:
        for call in range(CALLS):
            first = PAIRS + call * KEYS
            keys = [key(number) for number in range(first, first + KEYS)]
            began = time.perf_counter_ns()
            values = db.get_many(keys)
            times.append(time.perf_counter_ns() - began)
            assert values == [None] * KEYS
    return statistics.median_low(times)


def build():
    command = ["cargo", "build", "--release", "--quiet", "-p", "criba-python", "--example", "times"]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/examples/times"


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    sides = {"Rust": [build()], "Python": [sys.executable, __file__]}
    nanos = {(work, side): [] for work in ["put", "get"] for side in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(sides)[::-1]
        with tempfile.TemporaryDirectory() as directory:
            for work in ["put", "get"]:
                for side in order:
                    output = subprocess.run(
                        [*sides[side], work, os.path.join(directory, side)], stdout=subprocess.PIPE, check=True
                    )
                    nanos[work, side].append(int(output.stdout))
        print("round", number + 1, {" ".join(of): times[-1] for of, times in nanos.items()}, flush=True)
    for work, what, unit in [("put", "a million pairs by put_many", 1e9), ("get", "1,000 absent keys by get_many", 1e3)]:
        rust, python = nanos[work, "Rust"], nanos[work, "Python"]
        ratio = statistics.median(there / here for here, there in zip(rust, python))
        print(
            f"{what}: Rust {statistics.median(rust) / unit:.3g}, Python {statistics.median(python) / unit:.3g} "
            f"{'s' if unit == 1e9 else 'µs'}; {ratio:.2f} times"
        )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print({"put": put, "get": get}[sys.argv[1]](sys.argv[2]))
    else:
        main()
