"""Calls that may read, write or wait release the GIL."""

import sys
import threading

import criba
import pytest

TRIES = 20_000

CALLS = {
    "get": lambda db: db.get("k5"),
    "db[key]": lambda db: db["k5"],
    "in": lambda db: "k5" in db,
    "get_with_expiry": lambda db: db.get_with_expiry("k5"),
    "get_many": lambda db: db.get_many(["k5", "x"]),
    "may_contain": lambda db: db.may_contain("k5"),
    "explain": lambda db: db.explain("k5"),
    "next": lambda db: next(db.keys()),
    "approximate_len": lambda db: db.approximate_len(),
    "put": lambda db: db.put("k", "1"),
    "db[key] =": lambda db: db.__setitem__("k", "1"),
    "delete": lambda db: db.delete("k"),
    "put_many": lambda db: db.put_many([("k", "1")]),
    "insert_if_absent": lambda db: db.insert_if_absent("k5"),
    "insert_many_if_absent": lambda db: db.insert_many_if_absent([("k5", "")]),
    "compare_and_swap": lambda db: db.compare_and_swap("k5", b"1", b"1"),
    "ingest": lambda db: db.ingest([]),
    "transact": lambda db: db.transact(lambda transaction: None),
    "snapshot.get": lambda db: db.snapshot().get("k5"),
    "sync": lambda db: db.sync(),
    "flush": lambda db: db.flush(),
    "compact": lambda db: db.compact(),
    "wait_until_settled": lambda db: db.wait_until_settled(),
    "disk_bytes": lambda db: db.disk_bytes(),
    "checkpoint": lambda db: pytest.raises(criba.CribaError, db.checkpoint, "/proc/absent/copy"),
    "open": lambda db: pytest.raises(criba.CribaError, criba.open, "/proc/absent/store"),
    "load": lambda db: pytest.raises(criba.CribaError, criba.BloomFilter.load, "/proc/absent/filter"),
    "map": lambda db: pytest.raises(criba.CribaError, criba.BloomFilter.map, "/proc/absent/filter"),
    "contains_many": lambda db: criba.BloomFilter(10).contains_many(["a"]),
    "update": lambda db: criba.SharedBloomFilter(10).update(["a"]),
}


def is_free_in(call):
    """Whether another thread of Python runs during one of many calls. Without a release it runs an hour later."""
    begin, ran = threading.Lock(), []
    begin.acquire()

    def run():
        begin.acquire()
        ran.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    try:
        begin.release()
        for _ in range(TRIES):
            call()
            if ran:
                return True
        return False
    finally:
        sys.setswitchinterval(interval)
        thread.join()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_releases_the_gil(db, name):
    db.put_many((f"k{number}", "1") for number in range(10))
    db.flush()
    assert is_free_in(lambda: CALLS[name](db))


def test_other_calls_keep_it():
    assert not is_free_in(lambda: len(b""))
    filter = criba.BloomFilter(10)
    assert not is_free_in(lambda: "a" in filter)
