"""An independent reader of criba's SSTables and manifests, written from format.md alone.

    format_reader.py tables DIR   what the manifest in force says of each live table, one a line
    format_reader.py list FILE    every entry: key, sequence number, kind, value; keys and values in hex
    format_reader.py ask FILE     reads keys in hex, one a line; prints the filter's verdicts, 0 or 1

The key of the store's hash comes from the manifest beside a table; where there is none, a filter over
the keyed hash can only answer 1. Every checksum is verified, and every rule of format.md that a table
and its manifest can be held to. Anything that breaks one ends the program with a message and exit
code 1; so does a damaged last edit of a manifest, which a store would drop.
"""

import os
import struct
import sys
import zlib

DATA, FILTER, INDEX, PROPERTIES = 1, 2, 3, 4
MAX_KEY = 2**16 - 1
MAX_VALUE = 2**30


def need(condition, what):
    if not condition:
        raise ValueError(what)


def checksum(file_id, offset, data):
    return zlib.crc32(data, zlib.crc32(struct.pack("<QQ", file_id, offset)))


class Fields:
    """Takes fields off the front of some bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def bytes(self, length):
        need(self.at + length <= len(self.data), "a field that is cut short")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, width):
        return int.from_bytes(self.bytes(width), "little")

    def varint(self):
        value = 0
        for i in range(10):
            byte = self.number(1)
            need(i < 9 or byte <= 1, "a varint of more than 64 bits")
            value |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return value

    def prefixed(self):
        return self.bytes(self.varint())


class Manifest:
    """The set of live tables that the manifest in force amounts to, and the key of the hash."""

    def __init__(self, directory):
        with open(os.path.join(directory, "CURRENT"), "rb") as file:
            current = file.read()
        lines = current.split(b"\n")
        need(len(lines) == 4 and lines[3] == b"", "a CURRENT of three lines")
        need(lines[2] == b"%08x" % zlib.crc32(current[:-9]), "the checksum of CURRENT")
        need(lines[0] == b"criba 1", "a layout of version 1")
        self.tables, self.key = {}, None
        counters = {3: 0, 4: 0, 5: 0}
        for number, edit in enumerate(self.edits(directory, lines[1].decode())):
            self.apply(Fields(edit), counters)
            need(number > 0 or self.key is not None, "a hash key in the first edit")
        need(self.key is not None, "a whole edit")

    def edits(self, directory, name):
        number = int(name.removeprefix("MANIFEST-"))
        with open(os.path.join(directory, name), "rb") as file:
            data = file.read()
        need(data[:8] == b"cribaMAN", "a manifest")
        version, _, features, log, self.store, _, stored = struct.unpack("<HHIQQII", data[8:40])
        need(checksum(number, 0, data[:36]) == stored and log == number, "the manifest's header")
        need(version == 1 and features == 0, "a manifest of version 1 without features")
        at, expected, parts = 40, 0, None
        while True:
            left = 32768 - at % 32768
            if left < 35:
                at += left
                continue
            if not data[at:].strip(b"\0"):
                need(parts is None, "a record that ends")
                return
            need(at + 27 <= len(data), "a whole frame header")
            stored, length, kind, log, seq, _ = struct.unpack("<IHBIQQ", data[at : at + 27])
            frame = data[at + 4 : at + 27 + length]
            need(27 + length <= left and len(frame) == 23 + length, "a frame within its block")
            need(checksum(number, at, frame) == stored, f"the checksum of the frame at {at}")
            need(log == number & 0xFFFFFFFF and kind in (1, 2, 3, 4, 5), "a frame of this log")
            need((kind in (3, 4)) == (parts is not None), "parts of records in order")
            if kind == 5:
                return
            need(seq == expected, "edits numbered one by one")
            parts = (parts or b"") + frame[23:]
            if kind in (1, 4):
                yield parts
                expected, parts = expected + 1, None
            at += 27 + length

    def apply(self, fields, counters):
        added, removed, filters = [], [], []
        while fields.at < len(fields.data):
            kind = fields.number(1)
            if kind == 1:
                added.append((fields.number(1), TableRecord(fields)))
            elif kind == 2:
                removed.append((fields.number(1), fields.number(8)))
            elif kind in counters:
                value = fields.number(8)
                need(value >= counters[kind], "counters that never go back")
                counters[kind] = value
            elif kind == 6:
                key = fields.bytes(16)
                need(self.key in (None, key), "one hash key")
                self.key = key
            elif kind == 7:
                filters.append((fields.number(8), FilterRecord(fields)))
            else:
                need(False, f"no field {kind}")
        for level, table in removed:
            need(table in self.tables and self.tables[table][0] == level, "a table to remove")
            del self.tables[table]
        for level, record in added:
            need(level <= 6 and record.id not in self.tables, "a table to add")
            self.tables[record.id] = (level, record)
        for table, record in filters:
            need(table in self.tables, "a table that gets a filter")
            old, new = self.tables[table][1].filter.generation, record.generation
            need(old < new <= 2**61, "generations that ascend")
            self.tables[table][1].filter = record


class FilterRecord:
    def __init__(self, fields):
        self.generation, self.length, self.checksum = (fields.number(n) for n in (8, 8, 4))


class TableRecord:
    def __init__(self, fields):
        self.id, self.file_length, self.index_offset = (fields.number(8) for _ in range(3))
        self.footer_checksum = fields.number(4)
        self.filter = FilterRecord(fields)
        self.entries, self.tombstones, self.keys = (fields.number(8) for _ in range(3))
        self.oldest, self.newest = fields.number(8), fields.number(8)
        self.smallest, self.largest = fields.prefixed(), fields.prefixed()


class Filter:
    """The contents of a filter block. `key` is the store's, or None if it is not known."""

    def __init__(self, contents, keys, key):
        need(len(contents) >= 128 and contents[:8] == b"cribaFLT", "a filter header")
        version, self.kind, self.hash, _ = struct.unpack("<HBBI", contents[8:16])
        self.salt, fingerprint, count, self.m = struct.unpack("<4Q", contents[16:48])
        self.k, _, rate, self.wide = struct.unpack("<IIdQ", contents[48:72])
        self.extractor, self.prefixes = struct.unpack("<QQ", contents[72:88])
        need(version == 1, "a filter of version 1")
        need(count == keys, "a filter of as many keys as the table")
        need(0 <= rate <= 1, "a sound rate")
        need(self.prefixes <= (keys if self.extractor else 0), "a sound number of prefixes")
        self.key, self.array = key, contents[128:]
        if self.hash == 2:
            need((self.salt, fingerprint) == (0, 0), "no salt and no key for MurmurHash2")
        else:
            need(self.hash == 3, "a hash that is known")
            if key is not None:
                need(fingerprint == sip_hash_1_3(key, b"criba: which key"), "a filter under this key")
        m, k, wide = self.m, self.k, self.wide
        if self.kind == 1:
            need(1 <= m <= 2**43 and 1 <= k <= 64 and wide == 0, "a sound geometry")
            length, self.holds = 8 * ((m + 63) // 64), self.bloom
        elif self.kind == 2:
            need(1 <= m <= 2**43 and m % 512 == 0 and (k, wide) == (8, 0), "a sound geometry")
            length, self.holds = m // 8, self.blocked
        else:
            need(self.kind == 3, "a kind that is known")
            need(128 <= m <= 2**40 and m % 64 == 0 and 1 <= k <= 48, "a sound geometry")
            need(wide < m // 64, "narrow segments")
            length, self.holds = 8 * (m // 64 * k + wide), self.ribbon
        need(len(self.array) == length, "an array as long as its shape takes")

    def may_contain(self, key):
        if self.hash == 2:
            return self.holds(murmur_hash_64a(key, 0))
        return self.key is None or self.holds(mix64(sip_hash_1_3(self.key, key) ^ self.salt))

    def prefix_of(self, key):
        """The prefix of a key under the filter's extractor; None if it has none, or that is unknown."""
        rule, parameter = self.extractor % 256, self.extractor >> 8
        if rule == 1:
            return key[:parameter] if len(key) >= parameter else None
        if rule == 2 and bytes([parameter]) in key:
            return key[: key.index(parameter) + 1]
        return None

    def may_contain_prefix(self, prefix):
        if self.hash == 2:
            return self.holds(murmur_hash_64a(prefix, GOLDEN))
        if self.key is None:
            return True
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
        row = h * (self.m - 63) >> 64
        coefficients = h * GOLDEN % 2**64 | 1
        segment, offset = divmod(row, 64)
        here = segment * self.k + min(segment, self.wide)
        there = (segment + 1) * self.k + min(segment + 1, self.wide)
        for j in range(self.k + (segment + 1 < self.wide)):
            # 128 rows of the column. The last segment has no next one, and then offset is 0.
            rows = self.word(here + j) | (self.word(there + j) << 64 if offset else 0)
            if bin(rows >> offset & coefficients).count("1") % 2 == 1:
                return False
        return True


class Table:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.file = file.read()
        directory, self.record = os.path.dirname(path), None
        in_store = os.path.exists(os.path.join(directory, "CURRENT"))
        manifest = Manifest(directory) if in_store else None
        self.read_footer(path)
        self.read_properties()
        self.read_index()
        if manifest is not None:
            need(self.store == manifest.store, "a table of this store")
            if self.id in manifest.tables:
                self.compare(manifest.tables[self.id][1])
        self.key = manifest.key if manifest is not None else None
        self.read_filter(directory)

    def compare(self, record):
        """Everything in the manifest's record of the table against the table."""
        self.record = record
        need(record.file_length == len(self.file), "the length in the manifest")
        need(record.index_offset == self.index[0], "the index offset in the manifest")
        need(record.footer_checksum == self.footer_checksum, "the footer in the manifest")
        names = "entries tombstones keys oldest newest smallest largest".split()
        for name in names:
            need(getattr(record, name) == getattr(self, name), f"{name} as in the manifest")

    def read_footer(self, path):
        at = self.footer_offset = len(self.file) - 128
        need(at >= 0, "a file shorter than a footer")
        footer = self.file[at:]
        need(footer[120:] == b"cribaSST", "no magic at the end")
        handles = struct.unpack("<8Q", footer[:64])
        self.id, self.store = struct.unpack("<QQ", footer[64:80])
        version, _, stored = struct.unpack("<HHI", footer[112:120])
        need(checksum(self.id, at, footer[:116]) == stored, "the footer's checksum")
        self.footer_checksum = stored
        need(version == 1, f"version {version} is not supported")
        self.filter, self.index, self.properties, ranges = (
            handles[i : i + 2] for i in range(0, 8, 2)
        )
        need(ranges[1] == 0, "range tombstones are not supported")
        need(os.path.basename(path) == f"{self.id:06}.sst", f"the name of table {self.id}")
        offset, length = self.filter
        if length > 0:
            need(offset % 64 == 0, "a filter at a multiple of 64")
            need(offset + length + 5 == self.index[0], "a filter that ends at the index")
        need(sum(self.index) + 5 == self.properties[0], "an index that ends at the properties")
        need(sum(self.properties) + 5 == at, "properties that end at the footer")

    def block(self, handle, block_type):
        offset, length = handle
        data = self.file[offset : offset + length + 5]
        need(len(data) == length + 5, "a block within the file")
        stored = int.from_bytes(data[-4:], "little")
        need(checksum(self.id, offset, data[:-4]) == stored, f"the checksum of the block at {offset}")
        need(data[-5] == block_type, f"a block of type {block_type} at {offset}")
        return data[:-5]

    def read_properties(self):
        fields = Fields(self.block(self.properties, PROPERTIES))
        need(fields.number(4) == 0, "keyspace 0")
        self.entries, self.tombstones, self.keys, self.blocks = (fields.number(8) for _ in range(4))
        self.key_bytes, self.value_bytes = fields.number(8), fields.number(8)
        self.oldest, self.newest = fields.number(8), fields.number(8)
        self.smallest, self.largest = fields.prefixed(), fields.prefixed()
        need(1 <= self.keys <= self.entries, "a sound number of keys")
        need(self.tombstones <= self.entries, "a sound number of tombstones")
        need(self.oldest <= self.newest, "sequence numbers in order")
        need(self.smallest <= self.largest, "a range of keys in order")

    def read_index(self):
        contents = self.block(self.index, INDEX)
        need(len(contents) >= 12, "an index with an end")
        data_end, count = struct.unpack("<QI", contents[-12:])
        entries_end = len(contents) - 12 - 4 * count
        need(entries_end >= 0 and count == self.blocks >= 1, "as many blocks as the properties say")
        entry_offsets = struct.unpack(f"<{count}I", contents[entries_end:-12])
        offsets, self.separators = [], []
        expected = 0
        for at in entry_offsets:
            need(at == expected, "index entries one behind the other")
            fields = Fields(contents[at:entries_end])
            offsets.append(fields.number(8))
            self.separators.append(fields.bytes(fields.number(2)))
            expected = at + 10 + len(self.separators[-1])
        need(expected == entries_end, "index entries up to their offsets")
        ends = offsets[1:] + [data_end]
        self.data = [(start, end - start - 5) for start, end in zip(offsets, ends)]
        need(offsets[0] == 0, "a first block at 0")
        need(all(length >= 1 for _, length in self.data), "blocks with contents")
        need(ascending(self.separators), "ascending separators")
        need(self.separators[-1] == self.largest, "a last separator that is the largest key")
        rest = (data_end + 63) // 64 * 64 if self.filter[1] else data_end
        need(rest == (self.filter[0] if self.filter[1] else self.index[0]), "no gap behind the data")

    def read_filter(self, directory):
        """The filters that the table has: the one within it, and the one beside it if that is in force."""
        self.filters = []
        within = None
        if self.filter[1] > 0:
            self.filters.append(Filter(self.block(self.filter, FILTER), self.keys, self.key))
            within = self.file[self.index[0] - 4 : self.index[0]]
        record = self.record.filter if self.record is not None else None
        self.in_force = self.filters[-1] if self.filters else None
        if record is None:
            return
        if record.generation > 0 and record.length == 0:
            self.in_force = None
        elif record.generation > 0:
            name = f"{self.id:06}-{record.generation:04}.flt"
            with open(os.path.join(directory, name), "rb") as file:
                block = file.read()
            need(block[-5] == FILTER, "a filter block beside the table")
            need(checksum(self.id, record.generation, block[:-4]) == record.checksum, f"a sound {name}")
            need(block[-4:] == record.checksum.to_bytes(4, "little"), f"the checksum of {name}")
            need(len(block) == record.length + 5, f"the length of {name}")
            self.in_force = Filter(block[:-5], self.keys, self.key)
            self.filters.append(self.in_force)
        elif within is None:
            need((record.length, record.checksum) == (0, 0), "no filter, as in the manifest")
        else:
            need(record.length == self.filter[1], "a filter as long as in the manifest")
            need(record.checksum == int.from_bytes(within, "little"), "the filter in the manifest")

    def may_contain(self, key):
        """The verdict of the filter in force."""
        return self.in_force is None or self.in_force.may_contain(key)

    def block_entries(self, handle):
        """The entries of one data block: key, sequence number, kind, value."""
        contents = self.block(handle, DATA)
        need(len(contents) >= 4, "restart points")
        count = int.from_bytes(contents[-4:], "little")
        end = len(contents) - 4 - 4 * count
        need(count >= 1 and end > 0, "restart points behind entries")
        restarts = struct.unpack(f"<{count}I", contents[end:-4])
        need(restarts[0] == 0 and ascending(restarts), "ascending restart points")
        fields, key, whole_keys = Fields(contents[:end]), b"", set()
        while fields.at < end:
            offset = fields.at
            shared, suffix, value, seq = (fields.varint() for _ in range(4))
            kind = fields.number(1)
            need(kind in (0, 1), f"an entry of kind {kind}")
            need(shared <= len(key) and shared + suffix <= MAX_KEY, "a key of sound length")
            need(value <= MAX_VALUE and (kind == 1 or value == 0), "a value of sound length")
            if shared == 0:
                whole_keys.add(offset)
            key = key[:shared] + fields.bytes(suffix)
            yield key, seq, kind, fields.bytes(value)
        need(whole_keys.issuperset(restarts), "whole keys at restart points")

    def all_entries(self):
        """Every entry, with all that the index and the properties say of them verified."""
        before, last_key, total = None, None, [0] * 5
        prefixes = [set() for _ in self.filters]
        seqs = []
        for number, handle in enumerate(self.data):
            first = True
            for key, seq, kind, value in self.block_entries(handle):
                # Keys ascend; the versions of one key descend, and are all in one block.
                need(before is None or before < (key, -seq), "entries in order")
                if first and number > 0:
                    need(self.separators[number - 1] < key, "a separator less than the next key")
                need(key <= self.separators[number], "a separator not less than the last key")
                first, before = False, (key, -seq)
                total[0] += 1
                total[1] += kind == 0
                total[2] += key != last_key
                total[3] += len(key)
                total[4] += len(value)
                seqs.append(seq)
                if last_key is None:
                    need(key == self.smallest, "the smallest key first")
                if key != last_key:
                    for known, held in zip(self.filters, prefixes):
                        need(known.may_contain(key), "a filter that knows its keys")
                        prefix = known.prefix_of(key)
                        if prefix is not None and prefix not in held:
                            need(known.may_contain_prefix(prefix), "a filter that knows its prefixes")
                            held.add(prefix)
                last_key = key
                yield key, seq, kind, value
        said = [self.entries, self.tombstones, self.keys, self.key_bytes, self.value_bytes]
        need(total == said, f"properties {said}, not {total}")
        need((min(seqs), max(seqs)) == (self.oldest, self.newest), "the sequence numbers promised")
        need(last_key == self.largest, "the largest key last")
        for known, held in zip(self.filters, prefixes):
            if known.extractor % 256 in (0, 1, 2):
                need(len(held) == known.prefixes, "as many prefixes as the filter says")


def ascending(items):
    return all(a < b for a, b in zip(items, items[1:]))


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


def main():
    modes = ("tables", "list", "ask")
    need(len(sys.argv) == 3 and sys.argv[1] in modes, "tables DIR, list FILE or ask FILE")
    mode, path = sys.argv[1:]
    if mode == "tables":
        for _, (level, r) in sorted(Manifest(path).tables.items()):
            numbers = (level, r.id, r.file_length, r.entries, r.tombstones, r.keys, r.filter.length)
            row = [*map(str, numbers), r.smallest.hex() + ".", r.largest.hex() + "."]
            sys.stdout.write(" ".join(row) + "\n")
    elif mode == "list":
        for key, seq, kind, value in Table(path).all_entries():
            sys.stdout.write(f"{key.hex()} {seq} {kind} {value.hex()}\n")
    else:
        table = Table(path)
        for line in sys.stdin:
            sys.stdout.write(f"{int(table.may_contain(bytes.fromhex(line)))}\n")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"{sys.argv[-1]}: {error}")
