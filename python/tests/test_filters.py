import threading

import criba
import pytest

CLASSES = [criba.BloomFilter, criba.GrowingBloomFilter, criba.SharedBloomFilter]
KEYS = [f"user{number}" for number in range(10_000)]
ABSENT = [f"other{number}" for number in range(10_000)]


@pytest.mark.parametrize("make", CLASSES)
def test_a_filter_denies_none_of_its_keys(make):
    filter = make(10_000, 0.01)
    assert filter.add("first") and not filter.add(b"first")
    filter.update(KEYS)
    assert "first" in filter and all(key in filter for key in KEYS)
    assert all(filter.contains_many(KEYS))
    passed = sum(filter.contains_many(ABSENT))
    assert 0 < passed < 150
    assert sum(key in filter for key in ABSENT) == passed
    assert filter.rate == 0.01 and 0 < filter.current_rate < 0.011
    assert filter.estimated_len == pytest.approx(10_001, rel=0.05)
    assert filter.fullness == "within" or filter.estimated_len > 10_000
    assert filter.bytes > 10_000 and type(filter).__name__ in repr(filter)


@pytest.mark.parametrize("make", CLASSES)
def test_a_filter_in_a_file(make, tmp_path):
    filter = make(10_000)
    filter.update(KEYS)
    file = tmp_path / "filter"
    filter.save(file)
    for again in [make.load(file), make.from_bytes(filter.to_bytes())]:
        assert again.contains_many(KEYS + ABSENT) == filter.contains_many(KEYS + ABSENT)
        again.add("one more")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(criba.CorruptError) as damage:
        make.load(file)
    assert damage.value.file == str(file) and damage.value.offset is not None


@pytest.mark.parametrize("make", CLASSES)
def test_wrong_arguments(make):
    for arguments in [(0,), (100, 0.0), (100, 1.0), (100, 2.0)]:
        with pytest.raises(criba.InvalidOptionError):
            make(*arguments)
    with pytest.raises(OverflowError):
        make(-1)
    filter = make(100)
    for one in ["abc", b"abc"]:
        with pytest.raises(TypeError, match="found one"):
            filter.update(one)
    with pytest.raises(TypeError):
        filter.add(5)
    assert filter.estimated_len == 0


def test_a_growing_filter_grows():
    filter = criba.GrowingBloomFilter(1000, 0.01)
    filter.update(KEYS)
    assert filter.layers == 4 and filter.current_rate <= 0.01
    fixed = criba.BloomFilter(1000, 0.01)
    fixed.update(KEYS)
    assert fixed.fullness == "overfull" and fixed.current_rate > 0.9


def test_a_mapped_filter(tmp_path):
    filter = criba.BloomFilter(10_000, 0.001)
    filter.update(KEYS)
    filter.save(tmp_path / "filter")
    mapped = criba.BloomFilter.map(tmp_path / "filter")
    assert mapped.contains_many(KEYS + ABSENT) == filter.contains_many(KEYS + ABSENT)
    assert (mapped.capacity, mapped.rate, mapped.bytes) == (10_000, 0.001, filter.bytes)
    assert "user7" in mapped and not hasattr(mapped, "add")
    criba.BloomFilter(10).save(tmp_path / "filter")  # in place of the mapped one, which stays
    assert all(mapped.contains_many(KEYS))


def test_union():
    one = criba.BloomFilter(10_000)
    other = one.empty_like()
    one.update(KEYS[:5000])
    other.update(KEYS[5000:])
    one.union(other)
    assert all(one.contains_many(KEYS)) and one.capacity == 10_000
    with pytest.raises(criba.MismatchError):
        one.union(criba.BloomFilter(10_000))


def test_threads_share_a_filter():
    filter = criba.SharedBloomFilter(40_000, shards=8)
    threads = [
        threading.Thread(target=lambda first=first: filter.update(f"{first}-{number}" for number in range(10_000)))
        for first in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for first in range(4):
        assert all(filter.contains_many(f"{first}-{number}" for number in range(10_000)))
    assert filter.capacity == 40_000


@pytest.mark.parametrize("make", CLASSES)
def test_keys_may_come_from_a_generator_that_uses_the_filter(make):
    filter = make(10_000)
    filter.update(key for key in KEYS + KEYS if key not in filter)
    assert all(filter.contains_many(KEYS))


@pytest.mark.parametrize("make", CLASSES)
def test_threads_add_beside_reads_and_saves(make, tmp_path):
    filter, stop, failed = make(100_000), threading.Event(), []

    def run(call):
        try:
            while not stop.is_set():
                call()
        except BaseException as error:
            failed.append(error)

    calls = [
        lambda: filter.contains_many(KEYS),
        lambda: filter.save(tmp_path / "filter"),
        lambda: (filter.to_bytes(), filter.estimated_len, repr(filter)),
    ]
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for key in KEYS * 5:
        filter.add(key)
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == [] and all(filter.contains_many(KEYS))


def test_filters_are_united_with_each_other_by_threads():
    one = criba.BloomFilter(100_000)
    other = one.empty_like()
    one.update(KEYS)
    one.union(one)
    threads = [threading.Thread(target=lambda a=a, b=b: [a.union(b) for _ in range(200)]) for a, b in [(one, other), (other, one)]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one.contains_many(ABSENT) == other.contains_many(ABSENT) and all(other.contains_many(KEYS))
