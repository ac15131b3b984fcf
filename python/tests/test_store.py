import math
import threading
import time

import criba
import pytest


def test_a_store_keeps_bytes_over_an_opening(path):
    with criba.open(path) as db:
        db[b"a"] = b"\x00\xff"
        db.put(bytearray(b"b"), memoryview(b"xy2")[2:])
        db.put("ñ", "3", synced=True)
        db.delete(b"absent")
        db["gone"] = "1"
        db.delete("gone", synced=True)
    with criba.open(path, create_if_missing=False) as db:
        assert list(db.items()) == [(b"a", b"\x00\xff"), (b"b", b"2"), ("ñ".encode(), b"3")]
        assert db[b"a"] == b"\x00\xff"
        assert db.get("gone") is None
        assert db.get("gone", b"other") == b"other"
        assert "b" in db and "gone" not in db
        with pytest.raises(KeyError) as absent:
            db[b"gone"]
        assert absent.value.args == (b"gone",)


@pytest.mark.parametrize("key", [1, None, 1.5, [1, 2], ("a",), object()])
def test_what_is_no_bytes_is_refused(db, key):
    for call in [db.get, db.delete, db.explain, db.may_contain, db.__contains__, db.__getitem__, db.prefix]:
        with pytest.raises(TypeError):
            call(key)
    with pytest.raises(TypeError):
        db.put(b"a", key)
    with pytest.raises(TypeError):
        db.get_many([b"a", key])
    assert list(db) == []


def test_a_memoryview_with_steps_is_its_bytes(db):
    db.put("a", memoryview(b"abcdef")[::2])
    assert db["a"] == b"ace"


def test_one_key_is_not_many(db):
    db["a"] = "1"
    for key in [b"a", "a", bytearray(b"a"), memoryview(b"a")]:
        with pytest.raises(TypeError, match="found one"):
            db.get_many(key)


def test_ranges_prefixes_and_reverse(db):
    db.put_many((f"{number:03}", str(number)) for number in range(300))
    db.flush()
    db["010"] = "new"
    keys = [f"{number:03}".encode() for number in range(300)]
    assert list(db) == list(db.keys()) == keys
    assert [key for key, _ in db.range("050", "053")] == keys[50:53]
    assert [key for key, _ in db.range("298")] == keys[298:]
    assert [key for key, _ in db.range(end=b"002", reverse=True)] == keys[:2][::-1]
    assert list(db.prefix("01", reverse=True))[-1] == (b"010", b"new")
    assert len(list(db.prefix("01"))) == 10
    assert list(db.values())[:2] == [b"0", b"1"]
    assert list(db.range("b", "a")) == []
    assert db.approximate_len() == 301  # the overwritten key counts twice


def test_an_iterator_shows_its_moment_and_ends(db):
    db["a"] = "1"
    scan = db.keys()
    db["b"] = "2"
    assert next(scan) == b"a"
    assert list(scan) == [] and next(scan, None) is None
    with db.keys() as scan:
        next(scan)
    assert list(scan) == []


def test_get_many_and_put_many_of_any_iterable(db):
    assert db.put_many(iter([("a", "1"), (b"b", b"2")])) == 2
    assert db.get_many(key for key in ["b", "x", b"a"]) == [b"2", None, b"1"]
    assert db.get_many([]) == [] and db.put_many([]) == 0
    for wrong in [[("a",)], [("a", "b", "c")], ["ab"], [["a", "b"]], [5]]:
        with pytest.raises(TypeError, match="a key and a value"):
            db.put_many(wrong)
    with pytest.raises(TypeError):
        db.put_many(5)


def test_put_many_writes_a_batch_for_each_64_kib(db):
    before = db.stats()["writes"]["groups"]
    value = b"v" * 1000
    assert db.put_many(((str(number), value) for number in range(1000)), synced=True) == 1000
    written = db.stats()["writes"]["groups"] - before
    assert 1_000_000 // (64 << 10) <= written <= 1_100_000 // (64 << 10) + 1


def test_an_exception_leaves_the_batches_before_it(db):
    def pairs():
        for number in range(1000):
            yield f"{number:04}", b"v" * 1000
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="the source failed"):
        db.put_many(pairs())
    kept = list(db)
    assert 900 < len(kept) < 1000
    assert kept == [f"{number:04}".encode() for number in range(len(kept))]


def test_insertions_of_absent_keys(db):
    assert db.insert_if_absent("a", "1")
    assert not db.insert_if_absent("a", "2")
    assert db.insert_if_absent("b")
    assert db["a"] == b"1" and db["b"] == b""
    assert db.insert_many_if_absent([("b", "2"), ("c", "3"), ("c", "4")]) == [False, True, False]
    assert db["c"] == b"3"
    assert db.compare_and_swap("a", b"1", b"2") and not db.compare_and_swap("a", b"1", None)
    assert db.compare_and_swap("a", b"2", None) and "a" not in db
    assert db.compare_and_swap("a", None, "3") and db["a"] == b"3"


def test_one_thread_of_many_inserts_a_key(db):
    won = []

    def insert(name):
        for number in range(500):
            if db.insert_if_absent(str(number), name):
                won.append(number)

    threads = [threading.Thread(target=insert, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(500))


def test_threads_share_an_iterator(db):
    db.put_many((f"{number:05}", "") for number in range(2000))
    scan, seen = db.keys(), []
    threads = [threading.Thread(target=lambda: seen.extend(scan)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(db)


def test_snapshots(db):
    db["a"] = "1"
    with db.snapshot() as snapshot:
        db["a"] = "2"
        db["b"] = "2"
        assert snapshot["a"] == b"1" and "b" not in snapshot
        assert list(snapshot.items()) == [(b"a", b"1")]
        assert isinstance(snapshot, criba.Reader) and not hasattr(snapshot, "put")
    with pytest.raises(criba.ClosedError):
        snapshot.get("a")


def test_ingest(db):
    db["k0500"] = "old"
    assert db.ingest((f"k{number:04}", str(number)) for number in range(1000)) == 1000
    assert db["k0500"] == b"500" and len(list(db)) == 1000
    with pytest.raises(criba.UnsortedError):
        db.ingest([("z2", ""), ("z1", "")])

    def failing():
        yield "z1", ""
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        db.ingest(failing())
    assert list(db.prefix("z")) == []
    # The iterable may read and write the store.
    assert db.ingest((key + b"x", db[key]) for key in db.snapshot()) == 1000
    assert db["k0999x"] == b"999"


def test_expiry(db):
    db.put("short", "1", ttl=0.05)
    db.put("at", "1", expires_at=time.time() + 1000)
    db.put("never", "1", ttl=math.inf)
    assert db.get_with_expiry("at")[1] == pytest.approx(time.time() + 1000, abs=5)
    assert db.get_with_expiry("never") == (b"1", None)
    assert db.get_with_expiry("absent") is None
    time.sleep(0.1)
    assert db.get("short") is None and list(db) == [b"at", b"never"]
    assert db.insert_if_absent("short", "2", ttl=1000)
    assert not db.insert_if_absent("short", "3", ttl=1000, synced=True)
    assert db["short"] == b"2" and db.get_with_expiry("short")[1] == pytest.approx(time.time() + 1000, abs=5)
    for wrong in [{"ttl": -1}, {"ttl": math.nan}, {"ttl": 1, "expires_at": 1}, {"expires_at": 1e300}]:
        with pytest.raises(ValueError):
            db.put("wrong", "1", **wrong)
    assert "wrong" not in db


def test_a_default_time_to_live(path):
    with criba.open(path, default_ttl=0.05) as db:
        db["a"] = "1"
        db.put("b", "1", ttl=math.inf)
        time.sleep(0.1)
        assert list(db) == [b"b"]


def test_transactions(db):
    db["from"], db["to"] = "90", "10"

    def transfer(transaction):
        amount = 30
        transaction["from"] = str(int(transaction["from"]) - amount)
        transaction["to"] = str(int(transaction["to"]) + amount)
        transaction.put("note", "x", ttl=1000)
        transaction.delete("note")
        assert "note" not in transaction and transaction.get("note", 1) == 1
        assert transaction.get_many(["from", "absent"]) == [b"60", None]
        assert transaction.range("f", "g") == transaction.prefix("f") == [(b"from", b"60")]
        with pytest.raises(KeyError):
            transaction["note"]
        kept.append(transaction)
        return amount

    kept = []
    assert db.transact(transfer, synced=True) == 30
    assert db.get_many(["from", "to"]) == [b"60", b"40"]
    with pytest.raises(criba.ClosedError):
        kept[0].get("from")

    def failing(transaction):
        transaction["from"] = "0"
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        db.transact(failing)
    assert db["from"] == b"60"


def test_a_transaction_is_repeated_after_a_conflict(db):
    db["count"] = "0"
    calls = []

    def count(transaction):
        calls.append(1)
        value = int(transaction["count"])
        if len(calls) == 1:
            db["count"] = "10"
        transaction["count"] = str(value + 1)

    db.transact(count)
    assert len(calls) == 2 and db["count"] == b"11"

    def never(transaction):
        db["count"] = str(int(transaction["count"]) + 1)
        transaction["other"] = ""

    with pytest.raises(criba.ConflictError):
        db.transact(never, tries=3)
    assert db["count"] == b"14" and "other" not in db


def test_counters_of_threads_by_transactions(db):
    db["count"] = "0"

    def add(transaction):
        transaction["count"] = str(int(transaction["count"]) + 1)

    threads = [
        threading.Thread(target=lambda: [db.transact(add, tries=10_000) for _ in range(100)]) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db["count"] == b"300"


def test_stats_and_explain_count_the_reads(db):
    db.put_many((f"user{number}", "x") for number in range(1000))
    db.flush()
    assert db.stats()["total"]["disk_reads"] == 0
    steps = db.explain("user7")
    assert steps["value"] == b"x"
    assert steps["steps"][-1]["Table"]["step"]["Probed"]["outcome"] == "TruePositive"
    assert steps["text"].startswith("memtable: the filter says no\n")
    assert db.stats()["total"]["disk_reads"] == 1
    absent = [f"user{number}" for number in range(1000, 2000)]
    assert db.get_many(absent) == [None] * 1000
    total = db.stats()["total"]
    assert total["true_negatives"] > 950
    assert total["true_negatives"] + total["false_positives"] + total["range_pruned"] == 1000
    maybe = sum(db.may_contain(key) for key in absent)
    assert maybe == total["false_positives"]
    assert all(db.may_contain(f"user{number}") for number in range(1000))
    assert db.disk_bytes() > 0


def test_a_reader_beside_the_writer(path):
    with criba.open(path) as db, pytest.raises(criba.LockedError) as locked:
        criba.open(path)
    assert locked.value.file.endswith("LOCK")
    with criba.open(path) as db:
        db["a"] = "1"
        with criba.open(path, read_only=True) as reader:
            assert reader["a"] == b"1"
            db["a"] = "2"
            snapshot = reader.snapshot()
            assert reader.refresh() and not reader.refresh()
            assert (snapshot["a"], reader["a"]) == (b"1", b"2")
            assert reader.stats()["levels"] and reader.disk_bytes() > 0
            assert isinstance(reader, criba.ReadOnlyDb) and not hasattr(reader, "put")
        with pytest.raises(criba.ClosedError):
            reader.refresh()


def test_checkpoints_and_compactions(db, tmp_path):
    db.put_many((str(number), "x") for number in range(100))
    db.checkpoint(tmp_path / "copy")
    db.delete("5")
    db.compact()
    db.wait_until_settled()
    db.sync()
    assert len(list(db)) == 99
    with criba.open(tmp_path / "copy") as copy:
        assert len(list(copy)) == 100


def test_options(path):
    for options in [
        {"filter": "ribbon", "bits_per_key": 12.5},
        {"rate": 0.001},
        {"filter": "none"},
        {"compression": "lz4", "block_bytes": 8192, "cache_bytes": 0, "memtable_bytes": 1 << 20},
        {"prefix_delimiter": "/", "filter_memory": 1 << 20, "strict_filters": True},
    ]:
        with criba.open(path, **options) as db:
            db["a/b"] = "1"
            db.compact()
    for wrong, kind in [
        ({"colour": 1}, TypeError),
        ({"cache_bytes": "many"}, TypeError),
        ({"cache_bytes": -1}, OverflowError),
        ({"filter": "cuckoo"}, ValueError),
        ({"filter": "none", "rate": 0.1}, ValueError),
        ({"rate": 0.1, "bits_per_key": 3}, ValueError),
        ({"rate": 2.0}, criba.InvalidOptionError),
        ({"compression": "zstd"}, ValueError),
        ({"prefix_delimiter": "//"}, ValueError),
    ]:
        with pytest.raises(kind):
            criba.open(path, **wrong)
    with criba.open(path) as db:
        assert db["a/b"] == b"1"
