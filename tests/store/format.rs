//! The library against the bytes of the example in `format.md`, and against its rules of damage.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use criba::{
    Allocation, Batch, Db, EntryKind, Error, FilterInfo, FilterKind, FilterPolicy, Options,
    PrefixExtractor, Snapshot, TableFile, Verdict,
};
use siphasher::sip::SipHasher13;

use crate::common;
use crate::format_stores::{Compared, Numbers, assert_same_outcome, with_edit};

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn options(seed: u64) -> Options {
    Options::new().seed(seed).background_threads(0).auto_compaction(false)
}

// ---------------------------------------------------------------------------------------------
// The worked example

fn document() -> String {
    std::fs::read_to_string(root().join("format.md")).unwrap()
}

/// The lines of a file of the example: code blocks that begin with "```hex NAME". A line has bytes, two
/// spaces, and what they are; `00*5` is five zeros.
fn example_lines(text: &str) -> BTreeMap<&str, Vec<(Vec<u8>, &str)>> {
    let blocks = text.split("\n```hex ").skip(1).map(|block| {
        let (name, lines) = block.split_once("\n```").unwrap().0.split_once('\n').unwrap();
        let line = |line| -> (Vec<u8>, &str) {
            let (bytes, what) = str::split_once(line, "  ").unwrap();
            let (bytes, times) = bytes.split_once('*').unwrap_or((bytes, "1"));
            let digits = bytes.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
            let bytes: Vec<u8> = digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
            (bytes.repeat(times.parse().unwrap()), what)
        };
        (name, lines.lines().map(line).collect())
    });
    blocks.collect()
}

fn example_files() -> BTreeMap<String, Vec<u8>> {
    let text = document();
    let lines = example_lines(&text).into_iter();
    let joined = |lines: Vec<(Vec<u8>, &str)>| lines.into_iter().flat_map(|line| line.0).collect();
    lines.map(|(name, lines)| (name.to_owned(), joined(lines))).collect()
}

/// Compares the library's bytes with the example, and the offsets with the places of their lines. If they
/// differ, prints the example's lines as they must be.
fn assert_example(name: &str, written: &[u8]) {
    let (text, mut at, mut right) = (document(), 0, true);
    for (bytes, what) in &example_lines(&text)[name] {
        let end = written.len().min(at + bytes.len());
        let now = &written[at..end];
        let alike = now.len() > 5 && now.iter().all(|byte| *byte == now[0]);
        let (shown, times) =
            if alike { (&now[..1], format!("*{}", now.len())) } else { (now, String::new()) };
        let shown = shown.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let said = what.strip_prefix("at ").and_then(|said| said.split_once(':'));
        let what = said.map_or((*what).to_owned(), |(_, what)| format!("at {at}:{what}"));
        println!("{shown}{times}  {what}");
        right &= now == bytes && said.is_none_or(|(said, _)| said == at.to_string());
        at = end;
    }
    assert!(right && at == written.len(), "{name}: other bytes, {} more", written.len() - at);
}

/// The offset of an edit of the example's manifest: number 1 is the flush, 5 the last.
fn edit_at(files: &BTreeMap<String, Vec<u8>>, number: usize) -> usize {
    let manifest = &files["MANIFEST-000002"];
    let length = |at: usize| usize::from(u16::from_le_bytes([manifest[at + 4], manifest[at + 5]]));
    (0..number).fold(4096, |at, _| at + 27 + length(at))
}

/// The start and the end of the filter in the example's table, and its value that the example does not
/// spell out.
const FILTER: usize = 32_832;
const INDEX: usize = 33_021;
const VALUE: Range<usize> = 66..32_766;

static CHERRY: [u8; 32_700] = [b'x'; 32_700];

/// The store, and a snapshot of its begin: the flush would drop the tombstone, which hides nothing.
fn example(dir: &Path) -> (Db, Snapshot) {
    let filter = FilterPolicy::classic().with_bits_per_key(4.0).with_kind(FilterKind::Ribbon);
    let options = Options::new().seed(1).background_threads(0).filter(filter);
    let db = options.prefix(PrefixExtractor::fixed(2)).open(dir).unwrap();
    let empty = db.snapshot();
    let mut batch = Batch::new();
    batch.put("apple", "red").put("apricot", "orange");
    db.write(batch).unwrap();
    db.delete("banana").unwrap();
    db.put("cherry", CHERRY).unwrap();
    (db, empty)
}

fn contents(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let items = db.iter().map(Result::unwrap);
    items.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn example_contents() -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = [("apple", &b"red"[..]), ("apricot", b"orange"), ("cherry", &CHERRY)];
    all.map(|(key, value)| (key.into(), value.into())).into()
}

#[test]
fn the_worked_example_is_what_the_library_writes() {
    let dir = common::tempdir();
    let assert_file =
        |dir: &Path, name| assert_example(name, &std::fs::read(dir.join(name)).unwrap());
    let (db, empty) = example(dir.path());
    db.flush().unwrap();
    let keyed = FilterPolicy::bits_per_key(10.0).with_allocation(Allocation::Uniform);
    for (policy, name) in [
        (FilterPolicy::classic().with_geometry(67, 7), "000004-0001.flt"),
        (keyed.with_kind(FilterKind::Bloom), "000004-0002.flt"),
    ] {
        db.rebuild_filters(&policy).unwrap();
        assert_file(dir.path(), name);
    }
    for name in ["CURRENT", "MANIFEST-000002", "000003.log", "000004.sst"] {
        assert_file(dir.path(), name);
    }
    drop((db, empty));

    let dir = common::tempdir();
    example(dir.path()).0.close().unwrap();
    assert_file(dir.path(), "CURRENT");
    assert_file(dir.path(), "000001.log");
    let manifest = std::fs::read(dir.path().join("MANIFEST-000002")).unwrap();
    let files = example_files();
    assert!(manifest == files["MANIFEST-000002"][..edit_at(&files, 1)]);
}

/// The upper half of a product, which maps hashes to blocks and rows.
fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// The last lines of the example, computed from its bytes and the formulas.
#[test]
fn the_intermediate_values_of_the_worked_filters_are_right() {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |z: u64| Numbers(z.wrapping_sub(GOLDEN)).next(); // SplitMix64 adds GOLDEN, then mixes
    let list = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(" ")
    };
    let (files, text) = (example_files(), document());
    let says = |kind: &str, what: &str, h: u64, then: &str| {
        let row = format!("\n    {kind:8} {what:6} {:18}  {then}\n", format!("{h:#x}"));
        assert!(text.contains(&row), "not in format.md: {row}");
    };
    let [ribbon, bloom, keyed] =
        [&files["000004.sst"][FILTER..], &files["000004-0001.flt"], &files["000004-0002.flt"]];
    let field = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let hash_key: [u8; 16] = files["MANIFEST-000002"][4151..4167].try_into().unwrap();
    let sip = SipHasher13::new_with_key(&hash_key);
    let halves = ["first", "second"].map(|n| sip.hash(format!("criba: prefixes, {n}").as_bytes()));
    let of_prefix = SipHasher13::new_with_keys(halves[0], halves[1]);
    assert_eq!(field(keyed, 24), sip.hash(b"criba: which key"));
    let place: Vec<u8> = [4_u64, 2, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(field(keyed, 16), sip.hash(&[b"criba: the salt ", &place[..]].concat()));
    let positions = |filter: &[u8], h: u64, held: bool| {
        let (m, k, step) = (field(filter, 40), field(filter, 48), mix(h.wrapping_add(GOLDEN)));
        let positions: Vec<u64> = (0..k).map(|i| (h % m + i * (step % m)) % m).collect();
        let is_set = |i: &u64| filter[128 + *i as usize / 8] >> (i % 8) & 1 == 1;
        assert_eq!(positions.iter().all(is_set), held, "{positions:?}");
        positions
    };
    for (bytes, (seed, sip), held) in
        [("apple", (0, sip), true), ("avid", (0, sip), false), ("ap", (GOLDEN, of_prefix), true)]
    {
        let h = murmurhash2::murmur64a(bytes.as_bytes(), seed);
        says("Bloom", bytes, h, &list(&mut positions(bloom, h, held).into_iter()));

        let (start, c) = (high(h, field(ribbon, 40) - 63), h.wrapping_mul(GOLDEN) | 1);
        let (k, wide) = (field(ribbon, 48), field(ribbon, 64));
        let z = |row: u64, j: u64| {
            let segment = row / 64;
            let word = segment * k + segment.min(wide) + j;
            field(ribbon, 128 + 8 * word as usize) >> (row % 64) & 1
        };
        let parity = |j| (0..64).fold(0, |sum, bit| sum ^ ((c >> bit & 1) & z(start + bit, j)));
        let parities: Vec<u64> = (0..k + u64::from(start / 64 + 1 < wide)).map(parity).collect();
        assert_eq!(parities.iter().all(|&parity| parity == 0), held, "{bytes}");
        let parities = list(&mut parities.into_iter());
        says("ribbon", bytes, h, &format!("{start}: {parities}"));

        let h = mix(sip.hash(bytes.as_bytes()) ^ field(keyed, 16));
        says("keyed", bytes, h, &list(&mut positions(keyed, h, held).into_iter()));
    }
}

/// With each filter in force.
#[test]
fn the_worked_example_is_read_as_it_says() {
    let files = example_files();
    for (end, generation) in [(edit_at(&files, 4), 1), (files["MANIFEST-000002"].len(), 2)] {
        let dir = common::tempdir();
        let mut files = files.clone();
        files.remove("000001.log");
        files.get_mut("MANIFEST-000002").unwrap().truncate(end);
        common::restore(dir.path(), &files);
        let path = dir.path().join("000004.sst");
        let table = TableFile::open(&path).unwrap();
        let entries = table.entries().map(Result::unwrap);
        let entries: Vec<_> = entries.map(|e| (e.key.to_vec(), e.seq, e.kind)).collect();
        assert_eq!(
            entries,
            [
                (b"apple".to_vec(), 1, EntryKind::Put),
                (b"apricot".to_vec(), 2, EntryKind::Put),
                (b"banana".to_vec(), 3, EntryKind::Delete),
                (b"cherry".to_vec(), 4, EntryKind::Put),
            ]
        );
        let FilterInfo::Active { generation: found, prefixes, .. } = table.filter() else {
            panic!("{:?}", table.filter());
        };
        assert_eq!((found, prefixes), (generation, 3));
        for (key, _, _) in entries {
            assert_eq!(table.verdict(key), Verdict::Maybe);
        }
        assert_eq!(table.verdict("avid"), Verdict::No);
        Compared::default().store(dir.path(), 100);
        let db = options(1).open(dir.path()).unwrap();
        assert_eq!(contents(&db), example_contents());
    }
}

/// A store of the example's `CURRENT`, its manifest up to `manifest_end`, and its log.
fn store_of(files: &BTreeMap<String, Vec<u8>>, dir: &Path, manifest_end: usize, log: &[u8]) {
    std::fs::write(dir.join("CURRENT"), &files["CURRENT"]).unwrap();
    std::fs::write(dir.join("MANIFEST-000002"), &files["MANIFEST-000002"][..manifest_end]).unwrap();
    std::fs::write(dir.join("000001.log"), log).unwrap();
}

#[test]
fn the_worked_log_is_replayed() {
    let files = example_files();
    let dir = common::tempdir();
    store_of(&files, dir.path(), edit_at(&files, 1), &files["000001.log"]);
    Compared::default().store(dir.path(), 10);
    let db = common::options().background_threads(0).open(dir.path()).unwrap();
    assert_eq!((db.recovery().logs, db.recovery().changes), (1, 4));
    assert_eq!(db.recovery().lost_tail, None);
    assert_eq!(contents(&db), example_contents());
}

/// With the second edit, the manifest needs table 4 and log 3.
#[test]
fn what_the_worked_manifest_names_must_be_there() {
    let files = example_files();
    let dir = common::tempdir();
    let manifest = &files["MANIFEST-000002"];
    store_of(&files, dir.path(), manifest.len(), &files["000001.log"]);
    let missing = |name: &str| {
        let error = common::options().background_threads(0).open(dir.path()).unwrap_err();
        let Error::Missing { path, .. } = &error else { panic!("{error}") };
        assert!(path.ends_with(name), "{error}");
    };
    missing("000004.sst");
    std::fs::write(dir.path().join("000004.sst"), &files["000004.sst"]).unwrap();
    missing("000003.log");
}

/// Settings are 29 bytes at the end of edit 0.
#[test]
fn a_manifest_has_settings() {
    let mut files = example_files();
    let (name, end) = ("MANIFEST-000002", edit_at(&files, 1));
    let manifest = files[name].clone();
    for (length, is_read) in [(end, true), (end - 29, false)] {
        let manifest = with_edit(name, &manifest[..4096], &manifest[4096 + 27..length]);
        let dir = common::tempdir();
        files.insert(name.to_owned(), manifest);
        store_of(&files, dir.path(), files[name].len(), &files["000001.log"]);
        assert_same_outcome(dir.path());
        let opened = common::options().background_threads(0).open(dir.path());
        assert_eq!(opened.is_ok(), is_read);
    }
}

/// Of version 1 was every store before the first release.
#[test]
fn a_store_of_version_1_is_refused_with_the_way_out() {
    let files = example_files();
    let dir = common::tempdir();
    store_of(&files, dir.path(), edit_at(&files, 1), &files["000001.log"]);
    let refused = || {
        assert_same_outcome(dir.path());
        let error = common::options().background_threads(0).open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let way_out =
            "dump the store with the criba that wrote it, and load the dump into a new one";
        assert!(error.to_string().contains(way_out), "{error}");
    };
    let current = b"criba 1\nMANIFEST-000002\n3649e7ad\n";
    std::fs::write(dir.path().join("CURRENT"), current).unwrap();
    refused();
    std::fs::write(dir.path().join("CURRENT"), &files["CURRENT"]).unwrap();
    let mut manifest = files["MANIFEST-000002"].clone();
    manifest[8] = 1;
    let sum = Log::checksum(2, 0, &manifest[..36]);
    manifest[36..40].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(dir.path().join("MANIFEST-000002"), manifest).unwrap();
    refused();
}

// ---------------------------------------------------------------------------------------------
// Damage, as format.md says what becomes of it

/// All bytes, but few of a run that is all alike.
fn sampled(bytes: Range<usize>, run: Range<usize>) -> impl Iterator<Item = usize> {
    bytes.filter(move |at| !run.contains(at) || at.is_multiple_of(997))
}

#[test]
fn every_flipped_bit_of_the_worked_table_is_noticed_but_in_the_padding() {
    let sound = &example_files()["000004.sst"];
    let padding = 32_779..FILTER;
    let dir = common::tempdir();
    let path = dir.path().join("000004.sst");
    let (mut flips, mut refused, mut degraded, mut unread) = (0, 0, 0, 0);
    for bit in sampled(0..sound.len(), VALUE).flat_map(|at| 8 * at..8 * at + 8) {
        let at = bit / 8;
        flips += 1;
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (bit % 8);
        std::fs::write(&path, &flipped).unwrap();
        let Ok(table) = TableFile::open(&path) else {
            refused += 1;
            continue;
        };
        let data_fails = table.entries().any(|entry| entry.is_err());
        let filter_degraded = matches!(table.filter(), FilterInfo::Degraded { .. });
        assert_eq!(data_fails, at < padding.start, "bit {bit}");
        assert_eq!(filter_degraded, (padding.end..INDEX).contains(&at), "bit {bit}");
        degraded += usize::from(filter_degraded);
        unread += usize::from(padding.contains(&at));
        if filter_degraded {
            assert_eq!(table.verdict("avid"), Verdict::Degraded);
        }
    }
    assert_eq!((degraded, unread), ((INDEX - FILTER) * 8, padding.len() * 8));
    assert_eq!(refused, (sound.len() - INDEX) * 8);
    println!("{flips} bits flipped: {refused} refused, {degraded} degraded");
}

/// One flipped bit in each byte of the log. A damaged header, and damage before a frame that proves it
/// synced, are refused; other damage is dropped and reported.
#[test]
fn a_flipped_bit_in_the_worked_log_is_refused_or_reported_and_never_believed() {
    let files = example_files();
    let log = &files["000001.log"];
    let (mut refused, mut reported, mut flips) = (0, 0, 0);
    // The record from 141 on has a frame in each block.
    for at in sampled(0..log.len(), 179..32_768) {
        flips += 1;
        let dir = common::tempdir();
        let mut flipped = log.clone();
        flipped[at] ^= 1 << (at % 8);
        store_of(&files, dir.path(), edit_at(&files, 1), &flipped);
        match common::options().background_threads(0).open(dir.path()) {
            Err(Error::Corrupt { path, .. }) => {
                assert!(at < 52 && path.ends_with("000001.log"), "byte {at}");
                refused += 1;
            }
            Err(other) => panic!("byte {at}: {other}"),
            Ok(db) => {
                // All frames say that 52 bytes were synced when they were written.
                let starts = [(52, 0), (106, 2), (141, 2), (32_906, 3)];
                let (record, keys) = starts.into_iter().rfind(|start| start.0 <= at).unwrap();
                let lost = db.recovery().lost_tail.as_ref().expect("it is reported");
                let written = common::written(&flipped).len();
                assert_eq!((lost.offset, lost.bytes), (record as u64, (written - record) as u64));
                assert_eq!(contents(&db).len(), keys);
                reported += 1;
            }
        }
    }
    assert_eq!((refused, reported), (52, flips - 52));
}

/// A log written by hand, from format.md.
struct Log {
    number: u64,
    salt: u64,
    bytes: Vec<u8>,
}

/// That of the example.
const HASH_KEY: [u8; 16] = 0x67ec_8e65_a18d_ebbe_5e55_32fb_eea2_93f8_u128.to_be_bytes();
const FULL: u8 = 1;
const END: u8 = 5;

impl Log {
    fn new(number: u64) -> Self {
        let salt = SipHasher13::new_with_key(&HASH_KEY)
            .hash(&[&b"criba: the log, "[..], &number.to_le_bytes()].concat());
        Self::with_salt(number, salt)
    }

    fn with_salt(number: u64, salt: u64) -> Self {
        let mut bytes = b"cribaWAL\x02\0\0\0\0\0\0\0".to_vec();
        bytes.extend(number.to_le_bytes());
        bytes.extend(0x910a_2dec_8902_5cc1_u64.to_le_bytes());
        bytes.extend([0; 4]);
        let sum = Self::checksum(number, 0, &bytes);
        bytes.extend(sum.to_le_bytes());
        bytes.extend(salt.to_le_bytes());
        bytes.extend(Self::checksum(number, 40, &salt.to_le_bytes()).to_le_bytes());
        Self { number, salt, bytes }
    }

    fn checksum(salt: u64, offset: usize, bytes: &[u8]) -> u32 {
        crc32fast::hash(&[&salt.to_le_bytes(), &offset.to_le_bytes(), bytes].concat())
    }

    fn frame(mut self, kind: u8, seq: u64, synced: usize, payload: &[u8]) -> Self {
        let mut covered = (payload.len() as u16).to_le_bytes().to_vec();
        covered.push(kind);
        covered.extend((self.number as u32).to_le_bytes());
        covered.extend(seq.to_le_bytes());
        covered.extend((synced as u64).to_le_bytes());
        covered.extend(payload);
        let sum = Self::checksum(self.salt, self.bytes.len(), &covered);
        self.bytes.extend(sum.to_le_bytes());
        self.bytes.extend(covered);
        self
    }

    /// A record of one change: an empty value for `key`. It takes 27 + 4 bytes.
    fn put(self, seq: u64, synced: usize, key: u8) -> Self {
        self.frame(FULL, seq, synced, &[1, 1, key, 0])
    }

    fn zeros(mut self, count: usize) -> Self {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    fn flip(mut self, at: usize) -> Self {
        self.bytes[at] ^= 1;
        self
    }

    /// With another byte in its header, under the checksum for log `number`.
    fn with_header(mut self, at: usize, byte: u8, number: u64) -> Self {
        self.bytes[at] = byte;
        let sum = Self::checksum(number, 0, &self.bytes[..36]);
        self.bytes[36..40].copy_from_slice(&sum.to_le_bytes());
        self
    }
}

/// The outcome of the example's store with these logs: the keys, and the place of a dropped tail.
fn recover(logs: &[Log]) -> Result<(String, Option<u64>), Error> {
    let dir = common::tempdir();
    let files = example_files();
    store_of(&files, dir.path(), edit_at(&files, 1), &[]);
    for log in logs {
        std::fs::write(dir.path().join(format!("{:06}.log", log.number)), &log.bytes).unwrap();
    }
    assert_same_outcome(dir.path());
    let db = common::options().background_threads(0).open(dir.path())?;
    let keys = contents(&db).into_iter().flat_map(|(key, _)| key).map(char::from).collect();
    Ok((keys, db.recovery().lost_tail.as_ref().map(|lost| lost.offset)))
}

#[track_caller]
fn recovers(logs: &[Log], keys: &str, lost: Option<u64>) {
    assert_eq!(recover(logs).unwrap(), (keys.to_owned(), lost));
}

#[track_caller]
fn refused(logs: &[Log]) {
    let error = recover(logs).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[test]
fn a_torn_tail_is_dropped_and_rot_is_refused() {
    let log = || Log::new(1).put(1, 52, b'a');
    recovers(&[Log::new(1)], "", None);
    recovers(&[log()], "a", None);
    recovers(&[log().zeros(70_000)], "a", None);
    recovers(&[log().zeros(10).frame(FULL, 2, 52, b"")], "a", Some(83));
    // Damage in the first of two records: it depends on what the second one knew.
    recovers(&[log().put(2, 52, b'b').flip(62)], "", Some(52));
    refused(&[log().put(2, 83, b'b').flip(62)]);
    refused(&[log().put(2, 83, b'b').flip(10)]);
    // Damage in the last record: a later log may bear witness, its own frames cannot.
    recovers(&[log().put(2, 83, b'b').flip(92)], "a", Some(83));
    recovers(&[log().put(2, 83, b'b').flip(92), Log::new(3)], "a", Some(83));
    recovers(&[log().put(2, 83, b'b').flip(92), Log::new(3).put(3, 0, b'c')], "a", Some(83));
    refused(&[log().put(2, 83, b'b').flip(92), Log::new(3).put(3, 52, b'c')]);
}

#[test]
fn sequence_numbers_and_end_frames_join_the_logs() {
    let log = || Log::new(1).put(1, 52, b'a');
    let next = |number: u64| number.to_le_bytes();
    recovers(&[log(), Log::new(3).put(2, 0, b'b')], "ab", None);
    recovers(&[log().frame(END, 2, 83, &next(3)), Log::new(3).put(2, 52, b'b')], "ab", None);
    // A record is missing between the two.
    recovers(&[log(), Log::new(3).put(3, 0, b'c')], "a", Some(52));
    refused(&[log(), Log::new(3).put(3, 52, b'c')]);
    recovers(&[log().put(3, 52, b'c')], "a", Some(83));
    // What an End frame or the manifest names must come next; only an empty log may come before.
    let ended = || log().frame(END, 2, 83, &next(5));
    recovers(&[ended(), Log::new(3), Log::new(5).put(2, 52, b'b')], "ab", None);
    let missing = |logs: &[Log]| {
        let error = recover(logs).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }), "{error}");
    };
    missing(&[ended()]);
    missing(&[ended(), Log::new(6).put(2, 52, b'b')]);
    // Behind an End frame nothing is read.
    recovers(&[log().frame(END, 2, 83, &next(0)).put(2, 83, b'b')], "a", None);
}

/// Byte 8 is in the version, byte 12 in the features, byte 24 in the store's id.
#[test]
fn the_header_of_every_log_is_checked_in_one_order() {
    fn log() -> Log {
        Log::new(1).put(1, 52, b'a')
    }
    fn damaged() -> Log {
        log().put(2, 83, b'b').flip(92)
    }
    let unsupported = |logs: &[Log]| {
        let error = recover(logs).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    };
    let third = || Log::new(3).put(2, 0, b'b');
    for (at, byte) in [(8, 3), (8, 1), (12, 1)] {
        unsupported(&[log(), third().with_header(at, byte, 3)]);
        // The checksum takes the number of the name: this is log 1 of a later version, misplaced.
        let misplaced = Log { number: 3, ..Log::new(1).with_header(at, byte, 1) };
        refused(&[log().frame(END, 2, 83, &3_u64.to_le_bytes()), misplaced]);
    }
    // Also behind damage, and before the log that must come.
    let ended = || log().frame(END, 2, 83, &5_u64.to_le_bytes());
    for first in [log, damaged] {
        refused(&[first(), third().with_header(24, 7, 3)]);
        refused(&[first(), third().flip(24)]);
        refused(&[first(), third().flip(40)]);
        unsupported(&[first(), third().with_header(8, 3, 3)]);
    }
    refused(&[ended(), Log::new(3).with_header(24, 7, 3), Log::new(5).put(2, 52, b'b')]);
    // Under another salt than the derived one there are no frames.
    let salted = |number| Log::with_salt(number, 5);
    refused(&[salted(1).put(1, 52, b'a')]);
    recovers(&[log(), salted(3).put(2, 52, b'b')], "a", None);
    refused(&[log(), Log { salt: third().salt, ..salted(3) }.put(2, 0, b'b')]);
    refused(&[log(), salted(3).with_header(24, 7, 3)]);
    // A log whose making failed has no frame, and perhaps no header.
    recovers(&[damaged(), Log::new(3).flip(24)], "a", Some(83));
    recovers(&[ended(), Log::new(3).flip(24), Log::new(5).put(2, 52, b'b')], "ab", None);
}

/// Padding reserves the place of an end frame: up to 34 bytes before it may stay unused.
#[test]
fn a_log_closed_near_the_end_of_a_block_is_whole() {
    for left in 20..40 {
        let dir = common::tempdir();
        let db = options(1).open(dir.path()).unwrap();
        // Header, frame header, and 6 bytes of batch before the value.
        db.put("k", vec![1; 32_768 - 52 - 27 - 6 - left]).unwrap();
        db.close().unwrap();
        let db = options(1).open(dir.path()).unwrap();
        assert_eq!(db.recovery().lost_tail, None, "{left} bytes left in the block");
    }
}

/// The same with a later synced log: a sound store must not be refused.
#[test]
fn a_log_that_ended_near_the_end_of_a_block_does_not_stop_a_store_from_opening() {
    let value = vec![1; 32_768 - 52 - 27 - 6 - 30];
    let mut batch = vec![1, 1, b'a'];
    batch.extend([(value.len() & 0x7f) as u8 | 0x80, (value.len() >> 7 & 0x7f) as u8 | 0x80]);
    batch.push((value.len() >> 14) as u8);
    batch.extend(&value);
    let ended = Log::new(1).frame(FULL, 1, 52, &batch);
    assert_eq!(ended.bytes.len(), 32_768 - 30);
    let ended = ended.zeros(30).frame(END, 2, 52, &3_u64.to_le_bytes());
    recovers(&[ended, Log::new(3).put(2, 52, b'b')], "ab", None);
}
