"""Forked and spawned processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap

import criba
import pytest


def in_child(run):
    """What `run` returns in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(run()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return answer


def name_of_error(call):
    try:
        call()
    except criba.CribaError as error:
        return type(error).__name__
    return None


def test_a_fork_gets_an_error_and_harms_nothing(db, path):
    db["a"] = "1"
    scan, snapshot = db.keys(), db.snapshot()
    calls = [
        lambda: db.get("a"),
        lambda: db.put("a", "2"),
        lambda: db.put_many([("a", "2")]),
        lambda: db.get_many(["a"]),
        lambda: db.ingest([("a", "2")]),
        lambda: db.transact(lambda transaction: transaction.get("a")),
        lambda: list(db),
        lambda: next(scan),
        lambda: snapshot.get("a"),
        db.flush,
        db.close,
    ]
    assert in_child(lambda: {name_of_error(call) for call in calls}) == "{'ForkedError'}"
    assert db["a"] == b"1" and next(scan) == b"a"
    db["b"] = "2"
    for holder in [scan, snapshot, db]:
        holder.close()
    with criba.open(path) as db:
        assert list(db) == [b"a", b"b"]


def fork_reader(queue, db):
    queue.put(name_of_error(lambda: db.get("a")))


def test_multiprocessing_by_fork(db):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=fork_reader, args=(queue, db))
    child.start()
    assert queue.get(timeout=60) == "ForkedError"
    child.join()


def spawned_reader(path, key):
    with criba.open(path, read_only=True) as db:
        return db.get(key)


def spawned_writer(path, key):
    with criba.open(path) as db:
        db[key] = "written by a child"


def test_multiprocessing_by_spawn(path):
    context = multiprocessing.get_context("spawn")
    with criba.open(path) as db, context.Pool(2) as pool:
        db.put_many((str(number), str(number)) for number in range(100))
        keys = [str(number) for number in range(0, 200, 20)]
        found = pool.starmap(spawned_reader, [(str(path), key) for key in keys])
    assert found == [key.encode() if int(key) < 100 else None for key in keys]
    with context.Pool(1) as pool:
        pool.apply(spawned_writer, (str(path), "new"))
    with criba.open(path) as db:
        assert db["new"] == b"written by a child"
        with pytest.raises(TypeError):
            context.Process(target=spawned_reader, args=(db, "new")).start()


def mapped(path, keys):
    filter = criba.BloomFilter.map(path)
    with open("/proc/self/maps") as maps:
        # Of a mapping that is shared with the file, the second field has an `r` and no `w`.
        permissions = [line.split()[1] for line in maps if line.rstrip().endswith(os.path.basename(path))]
    return filter.contains_many(keys), permissions


def test_three_processes_map_one_filter(tmp_path):
    path = str(tmp_path / "seen.filter")
    filter = criba.BloomFilter(10_000)
    filter.update(str(number) for number in range(10_000))
    filter.save(path)
    keys = [str(number) for number in range(20_000)]
    answers = filter.contains_many(keys)
    assert all(answers[:10_000]) and sum(answers[10_000:]) < 200
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        for found, permissions in pool.starmap(mapped, [(path, keys)] * 3):
            assert found == answers
            if sys.platform == "linux":
                assert permissions and all("w" not in permission for permission in permissions)


def test_a_kill_loses_no_acknowledged_write(path):
    program = textwrap.dedent("""
        import sys, criba
        db = criba.open(sys.argv[1])
        number = 0
        while True:
            assert db.insert_if_absent(str(number))
            print(number, flush=True)
            number += 1
    """)
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    acknowledged = [int(child.stdout.readline()) for _ in range(500)]
    child.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in child.stdout.read().split(b"\n")[:-1]]
    child.wait()
    with criba.open(path) as db:
        assert not any(db.insert_many_if_absent((str(number), "") for number in acknowledged))


def test_an_exit_without_close_loses_nothing(path):
    program = "import sys, criba; db = criba.open(sys.argv[1]); scan = iter(db); db['a'] = '1'; next(scan, None)"
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    with criba.open(path) as db:
        assert db["a"] == b"1"
