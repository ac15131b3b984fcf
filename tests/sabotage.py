"""Breaks the filters on purpose, one place at a time, and sees the test that is named for it turn red.

    python3 tests/sabotage.py            every sabotage; some ten seconds each on two cores
    python3 tests/sabotage.py NAME…      those whose names contain one of these words
    python3 tests/sabotage.py list       what there is

A check that cannot fail is none. Each sabotage below is a text of the source and what it is replaced
by; the text must stand there exactly once, so a change to the code says here that it needs a new one. All
happens in a copy under target/sabotage, whose builds are kept. The tests are first seen green there.
Exit code 1 if one stays green under its sabotage, or cannot be tried.
"""

import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = os.path.join(ROOT, "target", "sabotage")
COPY = os.path.join(WORK, "source")

SECTION, WRITER, FILTER = "src/filter/section.rs", "src/table/writer.rs", "src/table/filter.rs"
NEVER_DENIED = ("filters_never_deny", "no_key_of_any_table_is_ever_denied")
SWAPPED = ("filter_damage", "flips::swapped_filters_cost_reads_and_no_more")
IMPOSSIBLE = ("filter_damage", "forged::impossible_headers_cost_reads_and_no_more")
CRAFTED = ("crafted_keys", "crafted_keys_pass_keyed_filters_as_rarely_as_others")

# Without it most of what is wrong with a filter is noticed before its table is installed, and what
# notices it later is never seen at work.
NO_PROOF_AT_BIRTH = (
    FILTER,
    "hashes.iter().position(|hash| !filter.may_contain_hash(hash))",
    "hashes.iter().position(|hash| false && !filter.may_contain_hash(hash))",
)
ONE_KEY_LEFT_OUT = (
    SECTION,
    "hashes.iter().map(|h| hash.salted(h, salt)).collect()",
    "hashes.iter().skip(1).map(|h| hash.salted(h, salt)).collect()",
)

# What is broken; the test that must turn red; the edits: file, text, what replaces it.
SABOTAGES = [
    ("one key left out of a filter", NEVER_DENIED, [ONE_KEY_LEFT_OUT]),
    ("one key left out, no proof at birth", NEVER_DENIED, [ONE_KEY_LEFT_OUT, NO_PROOF_AT_BIRTH]),
    (
        "a wrong salt at reading",
        NEVER_DENIED,
        [
            (
                SECTION,
                "self.header.hash.salted(hash, self.header.salt)",
                "self.header.hash.salted(hash, self.header.salt ^ 1)",
            ),
            NO_PROOF_AT_BIRTH,
        ],
    ),
    (
        "no salt at all",
        CRAFTED,
        [("src/filter/hash.rs", "Self::SipHash13 => mix(hash ^ salt),", "Self::SipHash13 => mix(hash),")],
    ),
    (
        "a hash without the store's key",
        CRAFTED,
        [
            (
                "src/filter/hash.rs",
                "Self::SipHash13 => SipHasher13::new_with_key(&secret.0).hash(key),",
                "Self::SipHash13 => murmurhash2::murmur64a(key, secret.fingerprint()),",
            )
        ],
    ),
    (
        "the old filter kept after a compaction",
        NEVER_DENIED,
        [
            (
                "src/version/mod.rs",
                "let (table, filter) = (Arc::clone(table), Arc::clone(now.unwrap_or(filter)));",
                "let old = self.tables().find(|(_, live)| removed.iter().any(|r| r.1 == live.table.id()));"
                " let filter = old.map_or(filter, |(_, live)| &live.filter);"
                " let (table, filter) = (Arc::clone(table), Arc::clone(filter));",
            )
        ],
    ),
    (
        "tombstones left out",
        NEVER_DENIED,
        [
            (
                WRITER,
                "if let Some(hashes) = &mut self.hashes {",
                "if let (Some(hashes), EntryKind::Put) = (&mut self.hashes, entry.kind) {",
            )
        ],
    ),
    (
        "tombstones replaced by other keys",
        NEVER_DENIED,
        [
            (
                WRITER,
                "hashes.add(entry.key);",
                "hashes.add(if entry.kind == EntryKind::Put { entry.key } else { b\"gone\" });",
            )
        ],
    ),
    (
        "prefix instead of key",
        NEVER_DENIED,
        [
            (
                WRITER,
                "hashes.add(entry.key);",
                "hashes.add(&entry.key[..entry.key.len().min(4)]);",
            )
        ],
    ),
    (
        "bits published after the key",
        ("lib", "memtable::tests::the_bits_are_there_before_the_key"),
        [
            (
                "src/memtable/mod.rs",
                "let grown = self.filter.as_ref().map_or(0, |filter| filter.insert(entry.key));",
                "let grown = 0;",
            ),
            (
                "src/memtable/mod.rs",
                "            seq: entry.seq,\n        });\n",
                "            seq: entry.seq,\n        });\n"
                "        self.filter.as_ref().map_or(0, |filter| filter.insert(entry.key));\n",
            ),
        ],
    ),
    (
        "a block's checksum not compared",
        ("filter_damage", "flips::a_flipped_bit_anywhere_in_a_ribbon_filter_costs_reads_and_no_more"),
        [("src/table/format.rs", "if stored != computed {", "if stored == 0 && computed == 1 {")],
    ),
    (
        "the manifest's checksum not compared",
        SWAPPED,
        [
            (
                FILTER,
                "if u32_at(&memory, length + 1) != Some(meta.checksum) {",
                "if u32_at(&memory, length + 1).is_none() {",
            )
        ],
    ),
    (
        "a checksum that is not bound to its file",
        ("lib", "table::format::tests::a_block_is_sound_only_at_its_place"),
        [("src/codec.rs", "LittleEndian::write_u64(id, file_id);", "LittleEndian::write_u64(id, 0 * file_id);")],
    ),
    (
        "a filter under another hash key believed",
        IMPOSSIBLE,
        [
            (
                SECTION,
                "KeyHash::SipHash13 if fingerprint != secret.fingerprint() => {",
                "KeyHash::SipHash13 if fingerprint == 0 && secret.fingerprint() == 1 => {",
            )
        ],
    ),
    (
        "another number of keys believed",
        IMPOSSIBLE,
        [(SECTION, "if header.keys != keys {", "if header.keys == 0 && keys == 1 {")],
    ),
    (
        "another length believed",
        ("filter_damage", "forged::filters_of_another_length_cost_reads_and_no_more"),
        [(SECTION, "if length != expected {", "if length == 0 {")],
    ),
    (
        "memory for whatever a header says",
        IMPOSSIBLE,
        [(SECTION, "if length != expected {", "if std::hint::black_box(vec![0_u8; expected]).len() != length {")],
    ),
]


def run(test, *arguments):
    """One test by its whole name: whether it was built, ran, and was green."""
    target, name = test
    target = ["--lib"] if target == "lib" else ["--test", target]
    environment = {**os.environ, "CARGO_TARGET_DIR": os.path.join(WORK, "target")}
    build = ["cargo", "test", "--quiet", *target, "--no-run"]
    built = subprocess.run(build, cwd=COPY, env=environment, capture_output=True, text=True)
    if built.returncode != 0:
        return None, built.stderr
    command = ["cargo", "test", *target, "--", "--exact", name]
    result = subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True)
    output = result.stdout + result.stderr
    if "running 1 test\n" not in output:
        return None, f"no test {name} in {' '.join(target)}"
    return result.returncode == 0, output


def try_out(test, edits):
    """The test over the code with these edits; or what is wrong with them."""
    sound = {}
    try:
        for file, text, replacement in edits:
            path = os.path.join(COPY, file)
            with open(path) as source:
                code = source.read()
            sound.setdefault(path, code)
            if code.count(text) != 1:
                return None, f"{file} has {code.count(text)} times: {text}"
            with open(path, "w") as source:
                source.write(code.replace(text, replacement))
        return run(test)
    finally:
        for path, code in sound.items():
            with open(path, "w") as source:
                source.write(code)


def main():
    words = sys.argv[1:]
    if words == ["list"]:
        for name, (target, test), _ in SABOTAGES:
            print(f"{name}: {target}, {test}")
        return 0
    chosen = [s for s in SABOTAGES if not words or any(word in s[0] for word in words)]
    shutil.rmtree(COPY, ignore_errors=True)
    skipped = shutil.ignore_patterns("target", ".git", "__pycache__")
    shutil.copytree(ROOT, COPY, ignore=skipped)
    failures = 0
    for test in sorted({test for _, test, _ in chosen}):
        green, output = run(test)
        if not green:
            print(f"not green to begin with: {test[1]}\n{output}")
            return 1
    for name, test, edits in chosen:
        green, output = try_out(test, edits)
        if green is False:
            print(f"red    {name}: {test[1]}", flush=True)
        else:
            failures += 1
            reason = output.strip() if green is None else "nothing notices"
            print(f"FAILED {name}: {test[1]}: {reason}", flush=True)
    print(f"{len(chosen) - failures} of {len(chosen)} sabotages noticed by the test named for them")
    return 1 if failures or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
