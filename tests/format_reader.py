"""An independent reader of criba's SSTables, written from format.md alone.

    format_reader.py list FILE    every entry: key, sequence number, kind, value; keys and values in hex
    format_reader.py ask FILE     reads keys in hex, one a line; prints the filter's verdicts, 0 or 1

Every checksum is verified, and every rule of format.md that a table alone can be held to. Anything
that breaks one ends the program with a message and exit code 1.
"""

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


class Table:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.file = file.read()
        self.read_footer(path)
        self.read_properties()
        self.read_index()
        self.read_filter()

    def read_footer(self, path):
        at = self.footer_offset = len(self.file) - 128
        need(at >= 0, "a file shorter than a footer")
        footer = self.file[at:]
        need(footer[120:] == b"cribaSST", "no magic at the end")
        handles = struct.unpack("<8Q", footer[:64])
        self.id, self.store = struct.unpack("<QQ", footer[64:80])
        version, _, stored = struct.unpack("<HHI", footer[112:120])
        need(checksum(self.id, at, footer[:116]) == stored, "the footer's checksum")
        need(version == 1, f"version {version} is not supported")
        self.filter, self.index, self.properties, ranges = (
            handles[i : i + 2] for i in range(0, 8, 2)
        )
        need(ranges[1] == 0, "range tombstones are not supported")
        name = path.replace("\\", "/").split("/")[-1]
        need(name == f"{self.id:06}.sst", f"the name of table {self.id}")
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

    def read_filter(self):
        self.bits = None
        if self.filter[1] == 0:
            return
        contents = self.block(self.filter, FILTER)
        need(len(contents) >= 128 and contents[:8] == b"cribaFLT", "a filter header")
        version, kind, hashing, _ = struct.unpack("<HBBI", contents[8:16])
        salt, fingerprint, keys, self.m = struct.unpack("<4Q", contents[16:48])
        self.k, _, rate = struct.unpack("<IId", contents[48:64])
        need((version, kind, hashing, salt, fingerprint) == (1, 1, 1, 0, 0), "a filter that is known")
        need(keys == self.keys, "a filter of as many keys as the table")
        need(1 <= self.m <= 2**43 and 1 <= self.k <= 64, "a sound geometry")
        need(0 <= rate <= 1, "a sound rate")
        need(len(contents) == 128 + 8 * ((self.m + 63) // 64), "as many bits as the header says")
        self.bits = contents[128:]

    def may_contain(self, key):
        if self.bits is None:
            return True
        h1 = murmur_hash_64a(key, 0)
        h2 = murmur_hash_64a(key, h1)
        start, step = h1 % self.m, h2 % self.m
        positions = ((start + i * step) % self.m for i in range(self.k))
        return all(self.bits[at // 8] >> (at % 8) & 1 for at in positions)

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
                    need(self.may_contain(key), "a filter that knows its keys")
                last_key = key
                yield key, seq, kind, value
        said = [self.entries, self.tombstones, self.keys, self.key_bytes, self.value_bytes]
        need(total == said, f"properties {said}, not {total}")
        need((min(seqs), max(seqs)) == (self.oldest, self.newest), "the sequence numbers promised")
        need(last_key == self.largest, "the largest key last")


def ascending(items):
    return all(a < b for a, b in zip(items, items[1:]))


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
    need(len(sys.argv) == 3 and sys.argv[1] in ("list", "ask"), "list FILE or ask FILE")
    table = Table(sys.argv[2])
    if sys.argv[1] == "list":
        for key, seq, kind, value in table.all_entries():
            sys.stdout.write(f"{key.hex()} {seq} {kind} {value.hex()}\n")
    else:
        for line in sys.stdin:
            sys.stdout.write(f"{int(table.may_contain(bytes.fromhex(line)))}\n")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"{sys.argv[-1]}: {error}")
