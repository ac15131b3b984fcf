import errno

import criba
import pytest


def test_a_damaged_block_has_its_file_and_offset(path):
    with criba.open(path) as db:
        db.put_many((f"{number:05}", "x" * 20) for number in range(1000))
        db.flush()
    table = next(path.glob("*.sst"))
    content = bytearray(table.read_bytes())
    content[1000:1008] = b"decayed!"
    table.write_bytes(content)
    with criba.open(path) as db:
        with pytest.raises(criba.CorruptError) as damage:
            db.get_many([f"{number:05}" for number in range(1000)])
        assert damage.value.file == str(table)
        assert damage.value.offset == 0
        assert isinstance(damage.value, criba.CribaError)
        with pytest.raises(criba.CorruptError):
            list(db)
        assert db["00999"] == b"x" * 20


def test_errors_of_the_system_are_oserrors(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(criba.CribaError):
        criba.open(file)
    with pytest.raises(OSError) as missing:
        criba.BloomFilter.load(tmp_path / "absent")
    assert isinstance(missing.value, criba.IoError)
    assert missing.value.errno == errno.ENOENT
    assert missing.value.filename == missing.value.file == str(tmp_path / "absent")
    assert "absent" in str(missing.value)


def test_no_store(tmp_path):
    (tmp_path / "photo.jpg").write_text("")
    with pytest.raises(criba.NotAStoreError) as refused:
        criba.open(tmp_path, read_only=True)
    assert refused.value.file == str(tmp_path) and refused.value.offset is None
    with pytest.raises(criba.CribaError):
        criba.open(tmp_path / "absent", create_if_missing=False)
    assert [child.name for child in tmp_path.iterdir()] == ["photo.jpg"]


def test_close_twice(path):
    db = criba.open(path)
    snapshot = db.snapshot()
    db["a"] = "1"
    scan = db.items()
    db.close()
    db.close()
    for call in [lambda: db.get("a"), lambda: db.put("a", "2"), db.keys, db.snapshot, db.stats, lambda: "a" in db]:
        with pytest.raises(criba.ClosedError):
            call()
    assert list(snapshot) == [] and list(scan) == [(b"a", b"1")]
    snapshot.close()
    with criba.open(path) as db:
        assert db["a"] == b"1"


def test_too_long(db):
    with pytest.raises(criba.TooLongError):
        db.put(b"k" * 100_000, b"")
    with pytest.raises(ValueError):
        db.put_many([(b"k" * 100_000, b"")])
    assert list(db) == []


def test_each_class_of_errors_is_exported():
    classes = [value for value in vars(criba.errors).values() if isinstance(value, type)]
    assert len(classes) > 20
    for value in classes:
        assert issubclass(value, criba.CribaError)
        assert getattr(criba, value.__name__) is value and value.__doc__
