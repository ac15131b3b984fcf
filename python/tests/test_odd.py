"""Odd uses: forks beside threads, special files, endless iterables, wrong text."""

import errno
import itertools
import operator
import os
import signal
import threading
import time

import criba
import pytest

FILTERS = [criba.BloomFilter, criba.GrowingBloomFilter, criba.SharedBloomFilter]


def in_child(run, seconds=10):
    """What `run` returns in a forked child; None if it takes longer."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)  # ends the child, also while it waits for a lock
        try:
            os.write(writing, repr(run()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    return answer or None


def name_of_error(call):
    try:
        call()
    except criba.CribaError as error:
        return type(error).__name__
    return "none"


def test_a_fork_beside_a_thread_that_reads_an_iterator(path):
    with criba.open(path, default_ttl=0.001) as db:
        db.put_many((f"{number:06}", "") for number in range(300_000))
        time.sleep(0.01)
        for call in [next, criba.Scan.close]:
            held = False
            for _ in range(20):
                scan = db.keys()
                thread = threading.Thread(target=next, args=(scan, None))  # one long step over expired keys
                thread.start()
                time.sleep(0.002)
                held = thread.is_alive()
                answer = in_child(lambda: name_of_error(lambda: call(scan)))
                thread.join()
                if held:
                    break
            assert held, "no fork met the step"
            assert answer == ("'ForkedError'" if call is next else "'none'")


def test_a_message_of_the_system_is_shown(tmp_path):
    with pytest.raises(criba.IoError) as missing:
        criba.BloomFilter.load(tmp_path / "absent")
    assert str(missing.value).startswith(f"{tmp_path / 'absent'}: cannot open: ")
    assert missing.value.strerror == str(missing.value)
    assert missing.value.errno == errno.ENOENT


def test_a_text_with_surrogates_is_one_key():
    filter = criba.BloomFilter(10)
    for one in ["a\udc80", "\udc80"]:
        with pytest.raises(TypeError, match="found one"):
            filter.update(one)
    assert "a" not in filter


def test_a_signal_ends_an_endless_iterable(db):
    def interrupt(*_):
        raise InterruptedError("the signal")

    calls = [db.get_many, *(make(1000).update for make in FILTERS)]
    pairs = [db.put_many, db.insert_many_if_absent]
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for call, item in [*((call, "a") for call in calls), *((call, ("a", "b")) for call in pairs)]:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            items = itertools.repeat(item, 3_000_000)  # not endless, so that a failure is no hang
            with pytest.raises(InterruptedError):
                call(items)
            assert operator.length_hint(items) > 0, f"{call} read all before the signal"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_file_that_is_no_regular_one(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    filter = criba.BloomFilter(10)
    for call in [criba.BloomFilter.load, criba.BloomFilter.map, filter.save]:
        assert in_child(lambda: name_of_error(lambda: call(fifo))) in ("'CorruptError'", "'IoError'"), call
    assert fifo.is_fifo() and os.listdir(tmp_path) == ["fifo"]


def test_readamp_whose_process_fails(tmp_path, monkeypatch):
    (tmp_path / "criba.py").write_text("raise RuntimeError('another module')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(criba.CribaError, match="another module"):
        criba.readamp(n=500)


def test_readamp_without_a_report():
    with pytest.raises(criba.CribaError, match="no report"):
        criba.readamp(help=True)


def test_too_many_threads(path):
    with pytest.raises(criba.InvalidOptionError, match="background_threads"):
        criba.open(path, background_threads=2000)  # a number that does no harm where it is not refused
    assert not path.exists()
