// Reads the end of an SSTable, from its filter block on, and looks keys up in it. Written from format.md
// alone; each part names its section. Wrong bytes are an Error with their offset in the file.
"use strict";

const sampleTable = (() => {
  const utf8 = new TextEncoder();
  const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const u64 = (bytes, at) => viewOf(bytes).getBigUint64(at, true);
  const u32 = (bytes, at) => viewOf(bytes).getUint32(at, true);
  const u16 = (bytes, at) => viewOf(bytes).getUint16(at, true);
  const size = (bytes, at) => Number(u64(bytes, at));
  const low64 = (number) => BigInt.asUintN(64, number);

  function need(holds, offset, expected) {
    if (!holds) throw new Error(`offset ${offset}: expected ${expected}`);
  }

  // "Conventions": keys are ordered by their bytes.
  function compare(a, b) {
    const differs = a.findIndex((byte, place) => byte !== b[place]);
    if (differs < 0) return a.length - b.length;
    return differs < b.length ? a[differs] - b[differs] : 1;
  }

  // "Conventions": CRC-32( salt: u64 ‖ offset: u64 ‖ bytes ).
  const CRC = Array.from({ length: 256 }, (_, value) => {
    for (let bit = 0; bit < 8; bit++) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
    return value;
  });
  function checksum(salt, offset, bytes) {
    const all = new Uint8Array(16 + bytes.length);
    viewOf(all).setBigUint64(0, salt, true);
    viewOf(all).setBigUint64(8, BigInt(offset), true);
    all.set(bytes, 16);
    return ~all.reduce((crc, byte) => CRC[(crc ^ byte) & 255] ^ (crc >>> 8), ~0) >>> 0;
  }

  // "From a key to a hash"
  function mix64(z) {
    z = low64((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = low64((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return z ^ (z >> 31n);
  }
  const rotated = (x, by) => low64(x << by) | (x >> (64n - by));
  function sipHash13(key, data) {
    const [k0, k1] = [u64(key, 0), u64(key, 8)];
    let [a, b] = [k0 ^ 0x736f6d6570736575n, k1 ^ 0x646f72616e646f6dn];
    let [c, d] = [k0 ^ 0x6c7967656e657261n, k1 ^ 0x7465646279746573n];
    const round = () => {
      a = low64(a + b); c = low64(c + d);
      b = rotated(b, 13n) ^ a; d = rotated(d, 16n) ^ c; a = rotated(a, 32n);
      c = low64(c + b); a = low64(a + d);
      b = rotated(b, 17n) ^ c; d = rotated(d, 21n) ^ a; c = rotated(c, 32n);
    };
    const padded = new Uint8Array(data.length - (data.length % 8) + 8);
    padded.set(data);
    padded[padded.length - 1] = data.length; // modulo 256
    for (let at = 0; at < padded.length; at += 8) {
      d ^= u64(padded, at); round(); a ^= u64(padded, at);
    }
    c ^= 0xffn; round(); round(); round();
    return a ^ b ^ c ^ d;
  }

  // "SSTable": a block is contents ‖ type: u8 ‖ checksum: u32, at a handle's offset in the file.
  function block(table, handle, type) {
    const at = handle.offset - table.begin;
    const covered = table.bytes.subarray(at, at + handle.length + 1);
    const right = u32(table.bytes, at + covered.length) === checksum(table.blockSalt, handle.offset, covered);
    need(right, handle.offset, "a block with the right checksum");
    need(covered[handle.length] === type, handle.offset, `a block of type ${type}`);
    return covered.subarray(0, handle.length);
  }

  // "Footer": the last 128 bytes. It stands behind the properties block, which tells its offset in the file.
  function readFooter(bytes) {
    need(bytes.length >= 128, 0, "the 128 bytes of a footer");
    const footer = bytes.subarray(bytes.length - 128);
    const magic = new TextDecoder("latin1").decode(footer.subarray(120));
    const [filter, index, properties, range] =
      [0, 16, 32, 48].map((at) => ({ offset: size(footer, at), length: size(footer, at + 8) }));
    const end = (handle) => handle.offset + handle.length + 5;
    const [offset, id] = [end(properties), u64(footer, 64)];
    need(magic === "cribaSST", offset + 120, "a footer's magic");
    need(u32(footer, 116) === checksum(id, offset, footer.subarray(0, 116)), offset, "a footer");
    need(u16(footer, 112) === 2 && u32(footer, 108) === 0, offset, "version 2 without other features");
    need(range.length === 0, offset, "no range tombstones");
    const row = end(filter) === index.offset && end(index) === properties.offset;
    need(row && filter.length > 0, offset, "filter, index and properties in a row");
    const begin = offset + 128 - bytes.length;
    need(begin === filter.offset, begin, "the filter block first");
    return { bytes, begin, blockSalt: u64(footer, 80), filter, index, properties };
  }

  // "Properties block"
  function readProperties(table, { offset }) {
    const bytes = block(table, table.properties, 4);
    let at = 68;
    const key = () => {
      let [length, place, byte] = [0, 1, 0];
      do {
        need(at < bytes.length, offset, "a key");
        byte = bytes[at++];
        length += (byte & 127) * place;
        place *= 128;
      } while (byte > 127);
      need(at + length <= bytes.length, offset, "a key of its length");
      return bytes.subarray(at, (at += length));
    };
    need(bytes.length > at && u32(bytes, 0) === 0, offset, "properties of keyspace 0");
    const [entries, tombstones, keys, blocks, , , oldest, newest] =
      Array.from({ length: 8 }, (_, place) => u64(bytes, 4 + 8 * place));
    const [smallest, largest] = [key(), key()];
    need(keys >= 1n && keys <= entries && tombstones <= entries, offset, "counts of entries and keys");
    need(oldest <= newest && compare(smallest, largest) <= 0, offset, "ranges of numbers and keys");
    return { keys, blocks, smallest, largest };
  }

  // "Index block"
  function readIndex(table, { offset }) {
    const bytes = block(table, table.index, 3);
    need(bytes.length >= 16, offset, "an index");
    const count = u32(bytes, bytes.length - 4);
    need(u32(bytes, bytes.length - 16) === 0, offset, "no key that two blocks share");
    const entriesEnd = bytes.length - 16 - 4 * count;
    need(count > 0 && entriesEnd > 0, offset, "as many entries as the index counts");
    need(BigInt(count) === table.blocks, offset, "an entry for each data block");
    let at = 0;
    const entries = Array.from({ length: count }, (_, number) => {
      const begins = u32(bytes, entriesEnd + 4 * number) === at && at + 10 <= entriesEnd;
      need(begins, offset, "entries in a row");
      const separator = bytes.subarray(at + 10, at + 10 + u16(bytes, at + 8));
      const entry = { number, offset: size(bytes, at), separator };
      at += 10 + separator.length;
      return entry;
    });
    need(at === entriesEnd && entries[0].offset === 0, offset, "the first block at 0, no more entries");
    const dataEnd = size(bytes, bytes.length - 12);
    need(table.begin === Math.ceil(dataEnd / 64) * 64, offset, "the filter block behind the data");
    entries.forEach((entry, number) => {
      const next = entries[number + 1];
      entry.bytes = (next ? next.offset : dataEnd) - entry.offset;
      const upTo = next ? next.separator : table.largest;
      const order = compare(entry.separator, upTo);
      need(entry.bytes > 5 && (next ? order < 0 : order === 0), offset, "blocks and separators in order");
    });
    return entries;
  }

  // "Filter" and "Kind 1: Bloom"
  function readFilter(table, hashKey) {
    const { offset } = table.filter;
    const bytes = block(table, table.filter, 2);
    need(bytes.length >= 128, offset, "a filter's header");
    const magic = new TextDecoder("latin1").decode(bytes.subarray(0, 8));
    need(magic === "cribaFLT" && u16(bytes, 8) === 1, offset, "a filter of version 1");
    need(bytes[10] === 1 && bytes[11] === 3, offset + 10, "kind 1, Bloom, and hash 3, SipHash-1-3");
    const [salt, m, k] = [u64(bytes, 16), u64(bytes, 40), u32(bytes, 48)];
    const fingerprint = sipHash13(hashKey, utf8.encode("criba: which key"));
    need(u64(bytes, 24) === fingerprint, offset + 24, "the fingerprint of the hash key");
    need(u64(bytes, 32) === table.keys, offset + 32, "as many keys as in the properties");
    need(m >= 1n && m <= 1n << 43n && k >= 1 && k <= 64, offset + 40, "m and k within their bounds");
    const rate = viewOf(bytes).getFloat64(56, true);
    need(rate >= 0 && rate <= 1, offset + 56, "a rate");
    const [wide, extractor, prefixes] = [u64(bytes, 64), u64(bytes, 72), u64(bytes, 80)];
    need(wide === 0n, offset + 64, "no wide segments");
    need(prefixes <= (extractor === 0n ? 0n : table.keys), offset + 80, "at most as many prefixes as keys");
    need(BigInt(bytes.length - 128) === 8n * ((m + 63n) / 64n), offset + 128, "an array of m bits");
    return { salt, m, k, rate, array: bytes.subarray(128), arrayAt: offset + 128 };
  }

  function open(bytes, hashKey) {
    const table = readFooter(bytes);
    Object.assign(table, readProperties(table, table.properties));
    table.entries = readIndex(table, table.index);
    return Object.assign(table, readFilter(table, hashKey), { hashKey });
  }

  // "To look a key up", steps 1 to 3.
  function lookUp(table, key) {
    const inRange = compare(key, table.smallest) >= 0 && compare(key, table.largest) <= 0;
    const hash = mix64(sipHash13(table.hashKey, key) ^ table.salt);
    const step = mix64(low64(hash + 0x9e3779b97f4a7c15n)) % table.m;
    const probes = Array.from({ length: table.k }, (_, i) => {
      const bit = Number(((hash % table.m) + BigInt(i) * step) % table.m);
      const byte = table.array[bit >> 3];
      return { bit, byte, at: table.arrayAt + (bit >> 3), isSet: ((byte >> (bit & 7)) & 1) === 1 };
    });
    const maybe = inRange && probes.every((probe) => probe.isSet);
    const dataBlock = table.entries.find((entry) => compare(key, entry.separator) <= 0);
    return { inRange, hash, probes, maybe, dataBlock };
  }

  return { open, lookUp };
})();
