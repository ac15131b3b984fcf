"""A reader of criba's stores and filters, written from format.md and docs/filter-format.md alone.

    format_reader.py FILE

reads keys, one a line, and prints the verdicts, 0 or 1, of a filter on its own, with empty lines between.

    format_reader.py DIR

reads commands, one a line, and prints the answer to each, with an empty line behind:

    scan            key and value of every key, in order
    get KEY         the value, or "absent"
    tables          what the manifest says of each live SSTable
    entries ID      every entry of an SSTable, verified: key, sequence number, kind, value
    find ID KEY SEQ what a lookup at a sequence number finds in an SSTable: the same but for the key, or "none"
    ask ID KEY      the verdict of an SSTable's filter, 0 or 1
    try FAULT...    what a scan of the store with these faults comes to: "damaged" or "unsupported" if it is
                    refused, or the number of keys, the CRC-32 of the listing, the bytes dropped from the
                    logs, and the SSTables with degraded filters. A fault is NAME and "flip OFFSET MASK",
                    "cut LENGTH" or "put BYTES"

Keys and values are in hexadecimal, with a full stop behind. A store or SSTable that is refused ends the
program with a message and exit code 1.
"""

import bisect
import os
import re
import struct
import sys
import zlib

MAX_KEY, MAX_VALUE, MAX_NUMBER = 2**16 - 1, 2**30, 2**61
NEVER, LATEST = 2**64 - 1, 253402300799999
# The lengths of what an entry stores: a Delete, a Put, and an Expiring, which has its expiry before the value.
STORED = {0: range(1), 1: range(MAX_VALUE + 1), 3: range(8, MAX_VALUE + 9)}
MAX_BLOCK, MAX_PROPERTIES = 2**30 + 2**20, 2**20
MAX_COMPRESSED = 2**18
BLOCK, FRAME_HEADER, END_FRAME = 32768, 27, 35
FIRST_FRAME = {b"cribaWAL": 52, b"cribaMAN": 4096}


class Damage(ValueError):
    pass


class Unsupported(ValueError):
    pass


def need(condition, what):
    if not condition:
        raise Damage(what)


def supported(condition, what):
    if not condition:
        raise Unsupported(what)


def checksum(salt, offset, data):
    return zlib.crc32(data, zlib.crc32(struct.pack("<QQ", salt, offset)))


def ascending(items):
    return all(a < b for a, b in zip(items, items[1:]))


class Fields:
    """Takes fields off the front of some bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def more(self):
        return self.at < len(self.data)

    def bytes(self, length):
        need(self.at + length <= len(self.data), "a field that is not cut short")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, width):
        return int.from_bytes(self.bytes(width), "little")

    def varint(self):
        value = 0
        for i in range(10):
            byte = self.number(1)
            need(i < 9 or byte <= 1, "a varint of at most 64 bits")
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return value

    def prefixed(self):
        return self.bytes(self.varint())


# Names and CURRENT


NAMES = {
    "manifest": r"MANIFEST-([0-9]+)",
    "log": r"([0-9]+)\.log",
    "sst": r"([0-9]+)\.sst",
    "flt": r"([0-9]+)-([0-9]+)\.flt",
}


def parse_name(name):
    """The kind and number of a file of the store; (None, None) for another name."""
    for kind, pattern in NAMES.items():
        match = re.fullmatch(pattern, name)
        if match:
            numbers = [int(digits) for digits in match.groups()]
            spelled = [str(n).zfill(width) for n, width in zip(numbers, (6, 4))]
            if spelled == list(match.groups()) and max(numbers) <= 2**62 and numbers[1:] != [0]:
                return kind, numbers[0]
    return None, None


def read_current(files):
    need("CURRENT" in files, "a CURRENT")
    current = files["CURRENT"]
    lines = current.split(b"\n")
    need(len(current) <= 256 and len(lines) == 4 and lines[3] == b"", "a CURRENT of three lines")
    need(lines[2] == b"%08x" % zlib.crc32(current[:-9]), "the checksum of CURRENT")
    supported(lines[0] == b"criba 2", "a layout of version 2")
    name = lines[1].decode()
    need(parse_name(name)[0] == "manifest", "the name of a manifest")
    return name


def check_names(files, next_file):
    limit = min(next_file + 2**40, MAX_NUMBER)
    for kind, number in map(parse_name, files):
        need(kind is None or number <= limit, f"file numbers up to {limit}")


# Frames


class Log:
    """The frames of a manifest or log."""

    def __init__(self, data, number, magic, salt=None):
        self.data, self.number, self.magic, self.salt = data, number, magic, salt
        self.first_frame = FIRST_FRAME[magic]
        # How the records ended, once they are read: the log that an End frame names, or the damage's offset.
        self.next, self.damage = 0, None

    def header(self):
        """The store id and the salt."""
        header = self.data[:52]
        need(len(header) >= 40 and header[:8] == self.magic, "the magic of a log")
        version, _, features, number, store, _, stored = struct.unpack("<HHIQQII", header[8:40])
        need(checksum(self.number, 0, header[:36]) == stored, "the header's checksum")
        known = 15 if self.magic == b"cribaMAN" else 0
        supported(version == 2 and features & ~known == 0, "a known version and features")
        need(number == self.number and len(header) == 52, "the number of the file's name, and a salt")
        salt, stored = struct.unpack("<QI", header[40:])
        need(checksum(self.number, 40, header[40:48]) == stored, "the salt's checksum")
        return store, salt

    def frame(self, at):
        """Kind, sequence number, synced and payload of the whole frame at an offset; None without one."""
        end = min(len(self.data), at - at % BLOCK + BLOCK)
        if at + FRAME_HEADER > end:
            return None
        stored, length, kind, low, seq, synced = struct.unpack_from("<IHBIQQ", self.data, at)
        whole = self.data[at + 4 : at + FRAME_HEADER + length]
        fits = 1 <= kind <= 5 and low == self.number % 2**32 and at + FRAME_HEADER + length <= end
        if not fits or checksum(self.salt, at, whole) != stored:
            return None
        return kind, seq, synced, whole[FRAME_HEADER - 4 :]

    def records(self):
        """Sequence number, offset and payload of each record."""
        at, parts = self.first_frame, None
        while True:
            left = BLOCK - at % BLOCK
            if left < END_FRAME:
                at += left
            frame = self.frame(at)
            if frame is None:
                if parts is not None or self.data[at:].strip(b"\0"):
                    self.damage = at if parts is None else start
                return
            kind, seq, _, payload = frame
            in_order = kind in (3, 4) and seq == first_seq if parts is not None else kind in (1, 2, 5)
            if not in_order or (kind == 5 and len(payload) != 8):
                self.damage = at if parts is None else start
                return
            if kind == 5:
                self.next = int.from_bytes(payload, "little")
                return
            if parts is None:
                start, first_seq, parts = at, seq, b""
            parts += payload
            if kind in (1, 4):
                yield seq, start, parts
                parts = None
            at += FRAME_HEADER + len(payload)

    def witness(self, at):
        """The greatest `synced` of all whole frames from an offset on; None without a frame."""
        found, low = None, struct.pack("<I", self.number % 2**32)
        while True:
            # Wherever a frame may be, its log number is 7 bytes further on.
            at = self.data.find(low, at + 7) - 7
            if at < 0:
                return found
            frame = self.frame(at)
            if frame is not None:
                found = max(found or 0, frame[2])
            at += 1 if frame is None else FRAME_HEADER + len(frame[3])


# Manifest


class FilterRecord:
    def __init__(self, fields):
        self.generation, self.length, self.checksum = (fields.number(n) for n in (8, 8, 4))


class TableRecord:
    def __init__(self, fields):
        self.id, self.file_length, self.index_offset = (fields.number(8) for _ in range(3))
        self.footer_checksum, self.random = fields.number(4), fields.bytes(16)
        self.filter = FilterRecord(fields)
        self.entries, self.tombstones, self.keys = (fields.number(8) for _ in range(3))
        self.oldest, self.newest = fields.number(8), fields.number(8)
        self.smallest, self.largest = fields.prefixed(), fields.prefixed()
        tagged = tagged_fields(Fields(fields.prefixed()), (1, 2, 3, 4, 5))
        self.hidden, self.prefixes, self.ingested = tagged[1] or 0, tagged[2] or 0, tagged[3] is not None
        self.expiries, self.contents_bytes = tagged[4], tagged[5]
        need(tagged[3] in (None, 1), "1, if the table is ingested")


def tagged_fields(tagged, tags):
    """The fields behind these tags, numbers but for the expiries; None for one that is not there."""
    found = dict.fromkeys(tags)
    while tagged.more():
        tag, value = tagged.number(1), tagged.prefixed()
        if tag in found:
            need(len(value) == (72 if tag == 4 else 8) and found[tag] is None, "one field of its length")
            found[tag] = struct.unpack("<9Q", value) if tag == 4 else int.from_bytes(value, "little")
    expiries = found.get(4)
    need(expiries is None or (sorted(expiries) == list(expiries) and expiries[0] < NEVER), "expiries")
    need(found[1] != 0, "hidden bytes that are not 0")
    return found


def check_settings(fields):
    kind, hash_number, allocation, amount = (fields.number(1) for _ in range(4))
    a, b, extractor = (fields.number(8) for _ in range(3))
    (real,) = struct.unpack("<d", struct.pack("<Q", a))
    need(kind in (1, 2, 3, 4) and hash_number in (2, 3) and allocation <= 1, "settings that are known")
    sound = {
        0: a == 0,
        1: (1e-12 if kind in (3, 4) else 1e-6) <= real < 1,
        2: 0 < real <= 64,
        3: a <= 2**50,
        4: kind == 1 and 1 <= a <= 2**43 and 1 <= b <= 64,
    }
    need(sound.get(amount) and (amount == 4 or b == 0), "a sound amount")
    length = extractor >> 8 if extractor % 256 == 1 else 0
    need(extractor == 0 or (knows_prefixes(extractor) and length <= MAX_KEY), "a sound extractor")


class Manifest:
    """What the manifest in force comes to: the live tables, the hash key, and the counters by field."""

    def __init__(self, files):
        name = read_current(files)
        need(name in files, f"the manifest {name}")
        log = Log(files[name], parse_name(name)[1], b"cribaMAN")
        self.store, log.salt = log.header()
        self.tables, self.key, self.counters, self.has_settings = {}, None, {3: 0, 4: 0, 5: 0}, False
        self.time, self.compression = 0, None
        edits = 0
        for seq, _, edit in log.records():
            need(seq == edits, "edits numbered one by one")
            self.apply(Fields(edit))
            edits += 1
        need(edits > 0, "a whole edit")
        need(log.damage is None or (log.witness(log.damage) or 0) <= log.damage, "edits without rot")
        need(self.key is not None and self.has_settings, "a hash key and settings")
        self.oldest_log, self.flushed, self.next_file = self.counters.values()
        self.check()

    def apply(self, fields):
        added, removed, filters, once = [], [], [], set()
        compression = None
        while fields.more():
            kind = fields.number(1)
            need(kind in (1, 2, 7) or kind not in once, f"field {kind} at most once")
            once.add(kind)
            if kind in (1, 2):
                level = fields.number(1)
                need(level <= 6, "a level up to 6")
                if kind == 1:
                    added.append((level, TableRecord(fields)))
                else:
                    removed.append((level, fields.number(8)))
            elif kind in (3, 4, 5):
                value = fields.number(8)
                need(value >= self.counters[kind], "counters that never go back")
                self.counters[kind] = value
            elif kind == 6:
                key = fields.bytes(16)
                need(self.key in (None, key), "one hash key")
                self.key = key
            elif kind == 7:
                filters.append((fields.number(8), FilterRecord(fields)))
            elif kind == 9:
                time = fields.number(8)
                need(self.time <= time <= LATEST, "a time that does not go back")
                self.time = time
            elif kind == 10:
                need(fields.number(8) > 0, "a time to live")
            elif kind == 11:
                compression = fields.number(1)
                need(compression <= 1, "a compression that is known")
            else:
                need(kind == 8, f"no field {kind}")
                check_settings(fields)
                self.has_settings = True
        need(once.isdisjoint({10, 11}) or 8 in once, "a time to live and a compression among settings")
        if 8 in once:
            self.compression = compression
        for level, table in removed:
            need(table in self.tables and self.tables[table][0] == level, "a table to remove")
            del self.tables[table]
        for level, record in added:
            need(record.id not in self.tables, "a table to add")
            self.tables[record.id] = (level, record)
        for table, record in filters:
            need(table in self.tables, "a table that gets a filter")
            need(self.tables[table][1].filter.generation < record.generation, "ascending generations")
            self.tables[table][1].filter = record

    def check(self):
        need(max(self.counters.values()) <= MAX_NUMBER, "counters up to 2^61")
        levels = [[r for at, r in self.tables.values() if at == level] for level in range(7)]
        for tables in levels[1:]:
            tables.sort(key=lambda r: r.smallest)
            need(all(a.largest < b.smallest for a, b in zip(tables, tables[1:])), "disjoint tables")
        levels[0].sort(key=lambda r: r.newest)
        need(all(a.newest < b.oldest for a, b in zip(levels[0], levels[0][1:])), "L0 in order")
        for _, r in self.tables.values():
            need(r.smallest <= r.largest and r.oldest <= r.newest <= self.flushed, "ranges in order")
            contents = r.contents_bytes or 0
            need(1 <= r.keys <= r.entries <= max(r.file_length, contents), "a sound number of entries")
            need(r.index_offset < r.file_length >= contents / 255, "a table of sound size")
            recorded = r.contents_bytes is None or self.compression is not None
            need(recorded, "a compression, where tables are compressed")
            alike = 0 < r.oldest == r.newest and r.tombstones == 0 and r.entries == r.keys
            need(alike or not r.ingested, "one number for what was ingested")
            need(r.prefixes <= 16 * r.keys, "a sound number of prefixes")
            need(r.filter.generation <= MAX_NUMBER and r.id < self.next_file, "numbers in use")


# Write-ahead log


def expiry_of(kind, value):
    """The expiry of what an entry stores; None if it has none."""
    return int.from_bytes(value[:8], "little") if kind == 3 else None


def changes_of(seq, batch):
    """Key, sequence number, kind and value of each change."""
    fields, changes = Fields(batch), []
    while fields.more():
        kind = fields.number(1)
        need(kind in STORED, "a Put, Delete or Expiring")
        key, value = fields.prefixed(), fields.prefixed() if kind > 0 else b""
        need(len(key) <= MAX_KEY and len(value) in STORED[kind], "a key and value of sound length")
        changes.append((key, seq + len(changes), kind, value))
    return changes


def replay(files, manifest):
    """All changes of the logs, and the number of bytes dropped from their end."""
    numbers = sorted(number for kind, number in map(parse_name, files) if kind == "log")
    changes, expected, due = [], manifest.flushed + 1, manifest.oldest_log
    damaged, dropped = False, 0
    for number in (n for n in numbers if n >= manifest.oldest_log):
        salt = sip_hash_1_3(manifest.key, b"criba: the log, " + struct.pack("<Q", number))
        log = Log(files[f"{number:06}.log"], number, b"cribaWAL", salt)
        used = log.witness(0) is not None
        sound = False
        try:
            store, stored = log.header()
            sound = stored == salt
        except Damage:
            store = None
        need(store in (None, manifest.store), "a log of this store")
        need(sound or (not used and due != number), f"the header of log {number}")
        start, limit = 0, 0
        if not damaged:
            if not sound or due not in (None, number):
                need(not used, f"log {due}")
                continue  # its making failed halfway
            for seq, at, batch in log.records():
                if seq != expected:
                    # What is missing before the first record was in an earlier log.
                    log.damage, limit = at, 0 if at == log.first_frame else at
                    break
                changes += changes_of(seq, batch)
                expected = manifest.flushed + 1 + len(changes)
            else:
                limit = log.damage
            damaged, start, due = log.damage is not None, log.damage, log.next or None
        if damaged:
            need((log.witness(start) or 0) <= limit, f"log {number} without rot")
            dropped += max(0, len(log.data.rstrip(b"\0")) - start)
    need(damaged or due is None, f"log {due}")
    return changes, dropped


# SSTable

DATA, FILTER, INDEX, PROPERTIES, COMPRESSED = 1, 2, 3, 4, 6


def open_block(block, salt, offset, block_type):
    """The contents of a block. A filter beside its table has the table's id and its generation for both."""
    need(len(block) >= 5, "a whole block")
    need(checksum(salt, offset, block[:-4]) == int.from_bytes(block[-4:], "little"), "a block's checksum")
    need(block[-5] == block_type, f"a block of type {block_type}")
    return block[:-5]


def decompressed(contents):
    """The bytes that the contents of a compressed block stand for."""
    fields, found = Fields(contents), bytearray()
    length = fields.number(4)
    need(0 < length <= min(MAX_COMPRESSED, 255 * (len(contents) - 4)), "a length that can be")

    def long(nibble):
        total, byte = nibble, 255 if nibble == 15 else 0
        while byte == 255:
            byte = fields.number(1)
            total += byte
        return total

    while True:
        token = fields.number(1)
        found += fields.bytes(long(token >> 4))
        need(len(found) <= length, "no more than the length")
        if not fields.more():
            need(len(found) == length, "the length")
            return bytes(found)
        distance = fields.number(2)
        need(1 <= distance <= len(found), "a copy of what there is")
        copied = 4 + long(token & 15)
        need(len(found) + copied <= length, "no more than the length")
        for _ in range(copied):
            found.append(found[-distance])


class DataBlock:
    def __init__(self, contents, number):
        self.number = number
        need(len(contents) >= 4, "restart points")
        count = int.from_bytes(contents[-4:], "little")
        end = len(contents) - 4 - 4 * count
        need(count >= 1 and end > 0, "restart points behind entries")
        self.restarts = struct.unpack(f"<{count}I", contents[end:-4])
        need(self.restarts[0] == 0, "a first restart point at 0")
        self.entries, self.length = contents[:end], len(contents)

    def walk(self, start):
        """Offset, bytes shared, key, sequence number, kind and value of each entry."""
        fields, key = Fields(self.entries), b""
        fields.at = start
        while fields.more():
            offset = fields.at
            shared, suffix, value, seq = (fields.varint() for _ in range(4))
            if self.number is not None:
                need(seq == 0, "an ingested entry without a number")
                seq = self.number
            kind = fields.number(1)
            need(kind in STORED, "a Put, Delete or Expiring")
            need(shared <= len(key) and shared + suffix <= MAX_KEY, "a key of sound length")
            need(value in STORED[kind], "a value of sound length")
            key = key[:shared] + fields.bytes(suffix)
            yield offset, shared, key, seq, kind, fields.bytes(value)

    def listing(self):
        whole, before, expanded = set(), None, 0
        for offset, shared, key, seq, kind, value in self.walk(0):
            need(before is None or before < (key, -seq), "entries in order")
            need(offset == 0 or self.length <= 2**20, "one entry in a long block")
            if before is None or before[0] != key:
                expanded += len(key)
            if shared == 0:
                whole.add(offset)
            before = key, -seq
            yield key, seq, kind, value
        need(ascending(self.restarts) and whole.issuperset(self.restarts), "whole keys at restart points")
        need(expanded <= 32 * self.length, "keys in proportion to the block")

    def find(self, key, up_to):
        """Sequence number, kind and value of the newest entry of a key up to a number; None without one."""
        start = 0
        for restart in self.restarts:
            need(restart < len(self.entries), "a restart point within the entries")
            _, _, first, *_ = next(self.walk(restart))
            if first >= key:
                break
            start = restart
        for _, _, found, *entry in self.walk(start):
            if found > key or (found == key and entry[0] <= up_to):
                return entry if found == key else None
        return None


class Table:
    def __init__(self, files, manifest, level, record):
        self.level, self.record = level, record
        name = f"{record.id:06}.sst"
        need(name in files and len(files[name]) == record.file_length, f"{name} of the right length")
        self.file = files[name]
        self.read_footer(manifest.store)
        self.read_properties()
        self.read_index()
        self.filter, self.degraded = None, False
        try:
            block, *place = self.filter_block(files)
            if block is not None:
                need(block[-4:] == record.filter.checksum.to_bytes(4, "little"), "the manifest's filter")
                self.filter = filter_in(open_block(block, *place, FILTER), record.keys, manifest.key)
        except ValueError:
            self.degraded = True

    def row(self):
        r = self.record
        length = r.filter.length if self.filter else 0
        numbers = r.id, r.file_length, r.entries, r.tombstones, r.keys, length
        return text(self.level, *numbers, r.smallest, r.largest)

    def read_footer(self, store):
        at = len(self.file) - 128
        need(at >= 0 and self.file[-8:] == b"cribaSST", "a footer with its magic")
        footer, r = self.file[at:], self.record
        handles = struct.unpack("<8Q", footer[:64])
        number, found = struct.unpack("<QQ", footer[64:80])
        features, version, _, stored = struct.unpack("<IHHI", footer[108:120])
        need(checksum(number, at, footer[:116]) == stored, "the footer's checksum")
        supported(version == 2 and features <= 7, "SSTables of version 2, with known features")
        self.ingested, self.expiring, self.compressed = (features & bit > 0 for bit in (1, 2, 4))
        self.within, self.index, self.properties, ranges = (handles[i : i + 2] for i in (0, 2, 4, 6))
        self.salt = int.from_bytes(r.random[:8], "little")
        promised = store, r.id, r.footer_checksum, r.random
        need((found, number, stored, footer[80:96]) == promised, "the footer that was promised")
        supported(ranges[1] == 0, "no range tombstones")
        need(self.index[0] == r.index_offset, "the index where it was promised")
        need(r.filter.generation > 0 or self.within[1] == r.filter.length, "a filter as promised")
        need(self.within[1] == 0 or sum(self.within) + 5 == self.index[0], "a filter up to the index")
        need(sum(self.index) + 5 == self.properties[0], "an index up to the properties")
        need(sum(self.properties) + 5 == at, "properties up to the footer")
        need(self.index[1] <= MAX_BLOCK and self.properties[1] <= MAX_PROPERTIES, "blocks of sound length")

    def block(self, handle):
        return self.file[handle[0] : sum(handle) + 5]

    def data_block(self, handle):
        number = self.record.newest if self.ingested else None
        if self.compressed and self.block(handle)[-5:-4] == bytes([COMPRESSED]):
            return DataBlock(decompressed(self.contents(handle, COMPRESSED)), number)
        return DataBlock(self.contents(handle, DATA), number)

    def contents(self, handle, block_type):
        return open_block(self.block(handle), self.salt, handle[0], block_type)

    def read_properties(self):
        fields = Fields(self.contents(self.properties, PROPERTIES))
        need(fields.number(4) == 0, "keyspace 0")
        entries, tombstones, keys, self.blocks, key_bytes, value_bytes, oldest, newest = (
            fields.number(8) for _ in range(8)
        )
        smallest, largest = fields.prefixed(), fields.prefixed()
        tagged = tagged_fields(fields, (1, 2, 4, 5))
        need((tagged[4] is not None) == self.expiring, "expiries, if the footer says so")
        need((tagged[5] is not None) == self.compressed, "bytes of contents, if the footer says so")
        hidden, ingested = tagged[1] or 0, tagged[2] is not None
        need(hidden == 0 or (keys < entries and hidden <= key_bytes + value_bytes), "sound hidden bytes")
        need(1 <= keys <= entries >= tombstones and oldest <= newest, "sound numbers")
        need(ingested == (newest == 0), "no numbers of what was ingested, and only of that")
        need(not ingested or (tombstones == 0 and keys == entries), "entries that can be ingested")
        need(smallest <= largest and len(smallest) <= MAX_KEY >= len(largest), "a sound range of keys")
        r = self.record
        need(r.ingested == self.ingested == ingested, "ingested or not, as promised")
        numbers = (0, 0) if r.ingested else (r.oldest, r.newest)
        promised = r.entries, r.tombstones, r.keys, r.hidden, *numbers, r.smallest, r.largest
        found = entries, tombstones, keys, hidden, oldest, newest, smallest, largest
        need(found == promised, "properties as in the manifest")
        need((tagged[4], tagged[5]) == (r.expiries, r.contents_bytes), "tags as in the manifest")
        self.totals = [entries, tombstones, keys, key_bytes, value_bytes, hidden]

    def read_index(self):
        contents = self.contents(self.index, INDEX)
        need(len(contents) >= 16, "an index with an end")
        cuts, data_end, count = struct.unpack("<IQI", contents[-16:])
        cuts_at = len(contents) - 16 - 12 * cuts
        end = cuts_at - 4 * count
        need(end >= 0 and count == self.blocks >= 1, "as many blocks as the properties say")
        entry_offsets = struct.unpack(f"<{count}I", contents[end:cuts_at])
        fields, offsets, self.separators = Fields(contents[:end]), [], []
        for at in entry_offsets:
            need(at == fields.at, "index entries one behind the other")
            offsets.append(fields.number(8))
            self.separators.append(fields.bytes(fields.number(2)))
        need(not fields.more(), "index entries up to their offsets")
        ends = offsets[1:] + [data_end]
        self.data = [(start, end - start - 5) for start, end in zip(offsets, ends)]
        lengths = [length for _, length in self.data]
        need(offsets[0] == 0 and min(lengths) >= 1 and max(lengths) <= MAX_BLOCK, "blocks from 0 on")
        cuts = list(struct.iter_unpack("<IQ", contents[cuts_at:-16]))
        numbers = [number for number, _ in cuts]
        need(ascending(numbers) and all(n < count - 1 for n in numbers), "cuts of blocks but the last")
        # By number of a block that is cut: the sequence number of its last entry.
        self.cuts = dict(cuts)
        for i, (a, b) in enumerate(zip(self.separators, self.separators[1:])):
            need(a < b or (a == b and i in self.cuts), "ascending separators")
            need(a < b or self.cuts.get(i + 1, -1) < self.cuts[i], "cuts of one key, newest first")
        need(self.separators[-1] == self.record.largest, "a last separator that is the largest key")
        behind = -(-data_end // 64) * 64 if self.within[1] else data_end
        need(behind == (self.within if self.within[1] else self.index)[0], "no gap behind the data")

    def filter_block(self, files):
        """The block of the filter in force, and what its checksum takes before it; None without one."""
        r = self.record.filter
        if r.generation == 0:
            return (self.block(self.within), self.salt, self.within[0]) if self.within[1] else (None,)
        if r.length == 0:
            return (None,)
        name = f"{self.record.id:06}-{r.generation:04}.flt"
        need(name in files and len(files[name]) == r.length + 5, f"{name} of the right length")
        return files[name], self.record.id, r.generation

    def find(self, key, up_to=2**64 - 1):
        if not self.record.smallest <= key <= self.record.largest:
            return None
        if self.filter is not None and not self.filter.may_contain(key):
            return None
        number = bisect.bisect_left(self.separators, key)
        while self.separators[number] == key and up_to < self.cuts.get(number, 0):
            number += 1
        return self.data_block(self.data[number]).find(key, up_to)

    def entries(self):
        r, first = self.record, True
        for number, handle in enumerate(self.data):
            block, last = self.data_block(handle), None
            newer = self.cuts.get(number - 1, 0)
            for key, seq, kind, value in block.listing():
                if first:
                    need(key == r.smallest, "the smallest key first")
                first = False
                before = self.separators[number - 1] if number else None
                goes_on = before == key and seq < newer
                need(number == 0 or before < key or goes_on, "a key of this block")
                last = key, seq
                need(r.oldest <= seq <= r.newest, "the sequence numbers promised")
                yield key, seq, kind, value
            separator = self.separators[number]
            ends = last == (separator, self.cuts[number]) if number in self.cuts else last[0] <= separator
            need(ends, "a last entry as the index says")

    def check_expiries(self, found, total):
        """Whether each part of the bytes has ended at the time that the properties say."""
        earliest, *parts = self.record.expiries or [NEVER] * 9
        need(earliest == min((expiry for expiry, _ in found), default=NEVER), "the earliest expiry")
        for number, part in enumerate(parts, 1):
            ended = sum(length for expiry, length in found if expiry <= part or part == NEVER)
            need((8 * ended >= number * total) == (part < NEVER), "an eighth of the bytes that ends")

    def verified_entries(self, key_of_hash):
        """The entries, of which the properties and each filter must be true."""
        filters = [self.filter] if self.filter else []
        if self.within[1]:
            within = filter_in(self.contents(self.within, FILTER), self.record.keys, key_of_hash)
            filters += [within] if within else []
        prefixes, totals, seqs, last = [set() for _ in filters], [0] * 6, [], None
        expiries = []
        for key, seq, kind, value in self.entries():
            seqs.append(seq)
            expiries += [(expiry_of(kind, value), len(key) + len(value) + 5)] if kind == 3 else []
            hidden = len(key) + len(value) if key == last and self.totals[5] else 0
            for i, more in enumerate((1, kind == 0, key != last, len(key), len(value), hidden)):
                totals[i] += more
            for known, held in zip(filters, prefixes):
                need(key == last or known.may_contain(key), "a filter that knows its keys")
                for prefix in set(known.prefixes_of(key)) - held:
                    need(known.may_contain_prefix(prefix), "a filter that knows its prefixes")
                    held.add(prefix)
            last = key
            yield key, seq, kind, value
        r = self.record
        need(totals == self.totals and last == r.largest, f"properties {totals}, not {self.totals}")
        self.check_expiries(expiries, totals[3] + totals[4] + 5 * totals[0])
        if self.compressed:
            contents = sum(self.data_block(handle).length for handle in self.data)
            need(contents == r.contents_bytes, "as many bytes of contents as promised")
            types = {self.block(handle)[-5] for handle in self.data}
            need(COMPRESSED in types, "a compressed block")
        need((min(seqs), max(seqs)) == (r.oldest, r.newest), "the sequence numbers promised")
        for known, held in zip(filters, prefixes):
            expected = known.prefixes if knows_prefixes(known.extractor) else len(held)
            need(len(held) == expected, "as many prefixes as promised")


# Filter


def knows_prefixes(extractor):
    rule, parameter = extractor % 256, extractor >> 8
    many = rule == 3 and 2 <= parameter >> 8 <= 16
    return many or (rule == 1 and parameter > 0) or (rule == 2 and parameter < 256)


def filter_in(contents, keys, key):
    """The filter of a block; None for a kind of filters of tables that is in no use any more."""
    if contents[:11] == b"cribaFLT\x01\x00\x03":
        return None
    found = Filter(contents, keys, key)
    return found if found.kind != 2 else None


class Filter:
    """The contents of a filter block, under the store's hash key."""

    def __init__(self, contents, keys, key):
        need(len(contents) >= 128 and contents[:8] == b"cribaFLT", "a filter header")
        version, self.kind, self.hash, _ = struct.unpack("<HBBI", contents[8:16])
        self.salt, fingerprint, count, self.m = struct.unpack("<4Q", contents[16:48])
        self.k, _, rate, self.wide = struct.unpack("<IIdQ", contents[48:72])
        self.extractor, self.prefixes = struct.unpack("<QQ", contents[72:88])
        need(version == 1, "a filter of version 1")
        need(count == keys, "a filter of as many keys as the table")
        need(0 <= rate <= 1, "a sound rate")
        need(self.prefixes <= (16 * keys if self.extractor else 0), "a sound number of prefixes")
        self.key, self.array = key, contents[128:]
        if self.hash == 2:
            need((self.salt, fingerprint) == (0, 0), "no salt and no key for MurmurHash2")
        else:
            need(self.hash == 3, "a hash that is known")
            need(fingerprint == sip_hash_1_3(key, b"criba: which key"), "a filter under this key")
        length = self.shape()
        need(len(self.array) == length, "an array as long as its shape takes")

    def shape(self):
        """Checks the geometry, chooses the probe, and returns the length of the array."""
        m, k, wide = self.m, self.k, self.wide
        if self.kind == 1:
            need(1 <= m <= 2**43 and 1 <= k <= 64 and wide == 0, "a sound geometry")
            self.holds = self.bloom
            return 8 * ((m + 63) // 64)
        if self.kind == 2:
            need(1 <= m <= 2**43 and m % 512 == 0 and (k, wide) == (8, 0), "a sound geometry")
            self.holds = self.blocked
            return m // 8
        need(self.kind == 4, "a kind that is known")
        need(128 <= m <= 2**40 and m % 64 == 0 and 1 <= k <= 48, "a sound geometry")
        need(wide < m // 64, "narrow segments")
        self.holds = self.ribbon
        self.matrix = m // 64 * k + wide
        self.layers = ribbon_layers(m // 64)
        return 8 * (self.matrix + (sum(self.layers[:-1]) + 31) // 32)

    def may_contain(self, key):
        if self.hash == 2:
            return self.holds(murmur_hash_64a(key, 0))
        return self.holds(mix64(sip_hash_1_3(self.key, key) ^ self.salt))

    def prefixes_of(self, key):
        """The prefixes of a key under the filter's extractor; none if that is unknown."""
        rule, parameter = self.extractor % 256, self.extractor >> 8
        if not knows_prefixes(self.extractor):
            return []
        if rule == 1:
            return [key[:parameter]] if len(key) >= parameter else []
        delimiter, most = parameter % 256, parameter >> 8 if rule == 3 else 1
        ends = [end + 1 for end, byte in enumerate(key) if byte == delimiter]
        return [key[:end] for end in ends[:most]]

    def may_contain_prefix(self, prefix):
        if self.hash == 2:
            return self.holds(murmur_hash_64a(prefix, GOLDEN))
        halves = (sip_hash_1_3(self.key, b"criba: prefixes, " + n) for n in (b"first", b"second"))
        key = struct.pack("<QQ", *halves)
        return self.holds(mix64(sip_hash_1_3(key, prefix) ^ self.salt))

    def bit(self, i):
        return self.array[i // 8] >> (i % 8) & 1

    def word(self, i):
        return int.from_bytes(self.array[8 * i : 8 * i + 8], "little")

    def bloom(self, h):
        start, step = h % self.m, mix64((h + GOLDEN) % 2**64) % self.m
        return all(self.bit((start + i * step) % self.m) for i in range(self.k))

    def blocked(self, h):
        block = h * (self.m // 512) >> 64
        g = h * GOLDEN % 2**64
        return all(self.bit(512 * block + 64 * j + (g >> (16 + 6 * j) & 63)) for j in range(8))

    def ribbon(self, h):
        base = 0
        for segments in self.layers:
            row = 64 * base + (h * (64 * segments - 63) >> 64)
            base += segments
            is_last = base == self.m // 64
            if is_last or self.word(self.matrix + row // 2048) >> (row // 32 % 64) & 1 == 0:
                break
            h = mix64(h)
        coefficients = h * GOLDEN % 2**64 | 1
        right = 0 if is_last else h * GOLDEN >> 64
        segment, offset = divmod(row, 64)
        here = segment * self.k + min(segment, self.wide)
        there = (segment + 1) * self.k + min(segment + 1, self.wide)
        for j in range(self.k + (segment + 1 < self.wide)):
            # 128 rows of the column. The last segment has no next one, and then offset is 0.
            rows = self.word(here + j) | (self.word(there + j) << 64 if offset else 0)
            if bin(rows >> offset & coefficients).count("1") % 2 != right >> j & 1:
                return False
        return True


def ribbon_layers(segments):
    """The segments of each layer."""
    if segments < 12:
        return [segments]
    if segments < 300:
        last = 2 + segments * 45 // 1000
        return [segments - last, last]
    last = 2 + segments // 600
    second = (segments - last) * 40 // 1000
    return [segments - last - second, second, last]


GOLDEN = 0x9E3779B97F4A7C15


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def sip_hash_1_3(key, data):
    """SipHash as its authors describe it, with one round for each word and three at the end."""
    mask = 2**64 - 1

    def rotated(x, by):
        return (x << by | x >> (64 - by)) & mask

    def round(a, b, c, d):
        a, c = a + b & mask, c + d & mask
        b, d = rotated(b, 13) ^ a, rotated(d, 16) ^ c
        a = rotated(a, 32)
        c, a = c + b & mask, a + d & mask
        b, d = rotated(b, 17) ^ c, rotated(d, 21) ^ a
        return a, b, rotated(c, 32), d

    k0, k1 = struct.unpack("<QQ", key)
    a, b = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    c, d = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    # Zeros up to seven bytes in the last word; its eighth is the length modulo 256.
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) % 256])
    for (word,) in struct.iter_unpack("<Q", padded):
        d ^= word
        a, b, c, d = round(a, b, c, d)
        a ^= word
    c ^= 0xFF
    for _ in range(3):
        a, b, c, d = round(a, b, c, d)
    return a ^ b ^ c ^ d


def murmur_hash_64a(key, seed):
    m, mask = 0xC6A4A7935BD1E995, 2**64 - 1
    h = seed ^ (len(key) * m & mask)
    words = len(key) // 8
    for (w,) in struct.iter_unpack("<Q", key[: 8 * words]):
        w = w * m & mask
        w ^= w >> 47
        w = w * m & mask
        h = (h ^ w) * m & mask
    rest = key[8 * words :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h ^= h >> 47
    h = h * m & mask
    return h ^ h >> 47


# A filter on its own: docs/filter-format.md


class Part(Filter):
    def __init__(self, fields):
        self.m, self.wide, self.salt = (fields.number(8) for _ in range(3))
        self.k, self.kind = fields.number(4), fields.number(1)
        supported(self.kind != 3, "ribbons with layers")
        need(fields.number(3) == 0, "zeros behind a part")


class Standalone:
    def __init__(self, data):
        need(len(data) >= 64 and data[:8] == b"cribaFSA", "a filter")
        version, self.form, self.hash, stored = struct.unpack("<HBBI", data[8:16])
        supported(version == 1, "filters of version 1")
        need(stored == zlib.crc32(data[16:], zlib.crc32(data[:12])), "the checksum")
        self.key, (capacity, rate, count) = data[16:32], struct.unpack("<QdI", data[32:52])
        need(self.hash == 3 or (self.hash == 2 and not any(self.key)), "a hash and its key")
        need(0 <= rate <= 1 and (capacity > 0 or self.form == 2), "a capacity and a rate")
        need(1 <= self.form <= 4 and not any(data[52:64]), "a form, and zeros")
        fields = Fields(data)
        fields.at = 64
        need(count > 0, "a part")
        self.parts = [Part(fields) for _ in range(count)]
        need(not any(fields.bytes(-fields.at % 64)), "zeros up to the arrays")
        for part in self.parts:
            part.array = fields.bytes(part.shape())
            spare = int.from_bytes(part.array[-8:], "little") >> (part.m % 64 or 64)
            need(part.kind != 1 or spare == 0, "no bits behind the last")
            need(part.kind == 1 or self.form == 2, "a part of kind 1")
        need(not fields.more(), "nothing behind the arrays")
        need(count == 1 or self.form >= 3, "one part")
        need(self.form != 3 or 1e-6 <= rate < 1, "a rate to grow at")
        shapes = {(part.m, part.k) for part in self.parts}
        need(self.form != 4 or len(shapes) == 1, "parts of one shape")

    def may_contain(self, key):
        h = murmur_hash_64a(key, 0) if self.hash == 2 else sip_hash_1_3(self.key, key)
        if self.form == 2 and self.parts[0].salt:
            h = mix64(h ^ self.parts[0].salt)
        if self.form == 4:
            return self.parts[mix64((h + 2 * GOLDEN) % 2**64) * len(self.parts) >> 64].holds(h)
        return any(part.holds(h) for part in self.parts)


# The store


class Store:
    def __init__(self, files):
        self.manifest = Manifest(files)
        check_names(files, self.manifest.next_file)
        live = self.manifest.tables.items()
        self.tables = {id: Table(files, self.manifest, *entry) for id, entry in sorted(live)}
        self.changes, self.dropped = replay(files, self.manifest)
        self.memtable = {key: entry for key, *entry in self.changes}  # the newest of each key
        # L0 by newest sequence number, descending; below, one table a level has a key.
        self.in_order = sorted(self.tables.values(), key=lambda t: (t.level, -t.record.newest))

    def listing(self):
        newest = {}
        sources = [self.changes] + [table.entries() for table in self.tables.values()]
        for key, *entry in (change for source in sources for change in source):
            if key not in newest or newest[key][0] < entry[0]:
                newest[key] = entry
        return [(key, value) for key, entry in sorted(newest.items()) for value in self.values(entry)]

    def values(self, entry):
        """The value that an entry gives its key at the time of the manifest, if any."""
        _, kind, value = entry
        if kind == 1:
            yield value
        elif kind == 3 and expiry_of(kind, value) > self.manifest.time:
            yield value[8:]

    def get(self, key):
        found = self.memtable.get(key)
        for table in self.in_order:
            found = found or table.find(key)
        return next(self.values(found), None) if found else None


def outcome(files, *words):
    files, words = dict(files), iter(words)
    for name, what, argument in zip(words, words, words):
        data = bytearray(files.get(name, b""))
        if what == "flip":
            data[int(argument)] ^= int(next(words))
        elif what == "cut":
            del data[int(argument) :]
        else:
            data = bytes.fromhex(argument.rstrip("."))
        files[name] = bytes(data)
    try:
        store = Store(files)
        listing = store.listing()
    except Unsupported:
        return "unsupported"
    except ValueError:
        return "damaged"
    digest = zlib.crc32(b"".join(struct.pack("<II", len(k), len(v)) + k + v for k, v in listing))
    degraded = [str(id) for id, table in store.tables.items() if table.degraded]
    return f"{len(listing)} {digest} {store.dropped} [{','.join(degraded)}]"


def text(*fields):
    return " ".join(f"{f.hex()}." if isinstance(f, bytes) else str(f) for f in fields)


def answers(store, command, *words):
    """The lines of the answer to a command."""
    if command == "scan":
        return [text(*item) for item in store.listing()]
    if command == "tables":
        return [table.row() for table in store.tables.values()]
    if command == "get":
        value = store.get(bytes.fromhex(words[0].rstrip(".")))
        return ["absent" if value is None else text(value)]
    table = store.tables[int(words[0])]
    if command == "entries":
        need(not table.degraded, "a sound filter")
        entries = table.verified_entries(store.manifest.key)
        return [text(key, seq, kind, value) for key, seq, kind, value in entries]
    key = bytes.fromhex(words[1].rstrip("."))
    if command == "find":
        found = table.find(key, int(words[2]))
        return ["none" if found is None else text(*found)]
    need(command == "ask", "a command that is known")
    return [int(table.filter is None or table.filter.may_contain(key))]


def main():
    (path,) = sys.argv[1:]
    if os.path.isfile(path):
        with open(path, "rb") as file:
            known = Standalone(file.read())
        for line in sys.stdin:
            print(int(known.may_contain(bytes.fromhex(line.strip().rstrip(".")))), end="\n\n")
        return
    files, store = {}, None
    for name in os.listdir(path):
        with open(os.path.join(path, name), "rb") as file:
            files[name] = file.read()
    for line in sys.stdin:
        command, *words = line.split()
        if command == "try":
            lines = [outcome(files, *words)]
        else:
            store = store or Store(files)
            lines = answers(store, command, *words)
        print(*lines, sep="\n", end="\n\n")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"{error}")
