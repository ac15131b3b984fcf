"""Three rows of docs/lab.md: what the guide says of Python, tried.

    python python/benches/guide.py [ROUNDS]

Needs the wheel of `pip install ./python` (that of python/check is slower) and pybloom_live in this Python. The filters are for 100,000 keys at 0.1 %, of which 300,000 other keys
are looked up afterwards: a class as the guide has it, over SHA-256 and MD5, pybloom_live, and criba. They take
turns; times and ratios are medians of the rounds.
"""

import hashlib
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time

import criba
import pybloom_live

CAPACITY, RATE = int(os.environ.get("CAPACITY", 100_000)), 0.001  # fewer in the test of this program
KEYS = [f"user_{number}@example.com" for number in range(CAPACITY)]
ABSENT = [f"guest_{number}@example.com" for number in range(3 * CAPACITY)]
PROCESSES = 3
THREADS = 2


class Textbook:
    """A filter in plain Python that behaves as the guide's: its size, its hashes, and its places of a key."""

    def __init__(self, capacity, rate):
        self.m = math.ceil(-capacity * math.log(rate) / math.log(2) ** 2)
        self.k = max(1, round(self.m / capacity * math.log(2)))
        self.bits = bytearray(self.m // 8 + 1)

    def places(self, key):
        text = key.encode()
        first = int(hashlib.sha256(text).hexdigest(), 16)
        step = int(hashlib.md5(text).hexdigest(), 16)
        return [(first + step * probe) % self.m for probe in range(self.k)]

    def add(self, key):
        for place in self.places(key):
            self.bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, key):
        return all(self.bits[place >> 3] >> (place & 7) & 1 for place in self.places(key))


def microseconds(run, keys):
    """The time of the processor for each key: other programs do not add to it."""
    began = time.process_time()
    run(keys)
    return (time.process_time() - began) / len(keys) * 1e6


def one_by_one(filter):
    def add(keys):
        for key in keys:
            filter.add(key)

    def look_up(keys):
        for key in keys:
            key in filter

    return add, look_up


def together(filter):
    return filter.update, filter.contains_many


FILTERS = {
    "as the guide": (Textbook, one_by_one),
    "pybloom_live": (pybloom_live.BloomFilter, one_by_one),
    "criba": (criba.BloomFilter, one_by_one),
    "criba, update and contains_many": (criba.BloomFilter, together),
}


def times(rounds):
    """G 107 166 182: extensions beside plain Python."""
    adds = {name: [] for name in FILTERS}
    lookups = {name: [] for name in FILTERS}
    passed = {name: [] for name in FILTERS}
    for _ in range(rounds):
        for name, (make, how) in FILTERS.items():
            filter = make(CAPACITY, RATE)
            add, look_up = how(filter)
            adds[name].append(microseconds(add, KEYS))
            lookups[name].append(microseconds(look_up, ABSENT))
            assert all(key in filter for key in KEYS)
            passed[name].append(sum(key in filter for key in ABSENT) / len(ABSENT))
    for name in FILTERS:
        add, look_up = statistics.median(adds[name]), statistics.median(lookups[name])
        faster = [
            statistics.median(slow / fast for slow, fast in zip(of["as the guide"], of[name])) for of in (adds, lookups)
        ]
        print(
            f"{name}: add {add:.3g} µs ({faster[0]:.3g} times as fast), lookup {look_up:.3g} µs "
            f"({faster[1]:.3g}), FPR {statistics.mean(passed[name]):.3%}"
        )


def own_and_shared(file):
    """The KiB of memory that the mapping of a file takes: of this process alone, and its share of what is shared."""
    sizes = {}
    with open("/proc/self/smaps") as maps:
        here = False
        for line in maps:
            name, *rest = line.split()
            if "-" in name:
                here = line.rstrip().endswith(file)
            elif here and name in ("Private_Dirty:", "Rss:", "Pss:"):
                sizes[name] = sizes.get(name, 0) + int(rest[0])
    return sizes


def mapped(file, ready, answers):
    filter = criba.BloomFilter.map(file)
    found = filter.contains_many(KEYS + ABSENT)
    ready.wait()
    answers.put((sum(found), hash(tuple(found)), own_and_shared(file)))
    ready.wait()


def processes():
    """G 113-115 132-138 154: processes that map one filter."""
    filter = criba.BloomFilter(CAPACITY, RATE)
    filter.update(KEYS)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(os.path.realpath(directory), "users.filter")
        filter.save(file)
        ready, answers = context.Barrier(PROCESSES), context.Queue()
        children = [context.Process(target=mapped, args=(file, ready, answers)) for _ in range(PROCESSES)]
        for child in children:
            child.start()
        results = [answers.get(timeout=300) for _ in children]
        for child in children:
            child.join()
    expected = filter.contains_many(KEYS + ABSENT)
    assert all(expected[:CAPACITY])
    same = sum(result[:2] == (sum(expected), hash(tuple(expected))) for result in results)
    memory = {name: [result[2][name] for result in results] for name in results[0][2]}
    print(f"{same} of {PROCESSES} processes give the {len(expected):,} answers of the filter of {filter.bytes:,} bytes")
    print(
        f"mapped: {sum(memory['Rss:'])} KiB seen by all, {sum(memory['Pss:'])} KiB of memory, "
        f"{sum(memory['Private_Dirty:'])} KiB of it not shared"
    )


def in_threads(update, count):
    """Adds all keys from threads, a part by each; seconds."""
    parts = [KEYS[first::count] for first in range(count)]
    threads = [threading.Thread(target=update, args=(part,)) for part in parts]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def threads(rounds):
    """G 153 168: threads that share the bits."""
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    lost = 0
    for _ in range(rounds):
        filter = Textbook(CAPACITY, RATE)
        in_threads(one_by_one(filter)[0], 4)
        lost += sum(key not in filter for key in KEYS)
    sys.setswitchinterval(switch)
    print(f"as the guide, 4 threads, {rounds} filters: {lost} of {rounds * CAPACITY:,} keys lost")
    makers = {
        "as the guide": lambda: one_by_one(Textbook(CAPACITY, RATE))[0],
        "criba.SharedBloomFilter": lambda: criba.SharedBloomFilter(CAPACITY, RATE).update,
    }
    for name, make in makers.items():
        ratios = [in_threads(make(), 1) / in_threads(make(), THREADS) for _ in range(rounds)]
        print(f"{name}: {THREADS} threads are {statistics.median(ratios):.2f} times as fast as one")


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    times(rounds)
    processes()
    threads(rounds)
