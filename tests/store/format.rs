//! The library against `format.md`: against a reader written from it (`format_reader.py`, in Python), and
//! against the bytes of its example.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use criba::{
    Batch, Db, EntryKind, Error, FilterInfo, FilterPolicy, HashFunction, Options, TableEntry,
    TableFile, Verdict,
};

use crate::common;

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// A fixed sequence of numbers: SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Keys of every length up to 40: some random, some with long common prefixes.
    fn key(&mut self) -> Vec<u8> {
        match self.below(3) {
            0 => (0..self.below(41)).map(|_| self.next() as u8).collect(),
            1 => format!("a long prefix shared by many keys/{}", self.below(5000)).into_bytes(),
            _ => format!("{}", self.below(100_000)).into_bytes(),
        }
    }
}

// ---------------------------------------------------------------------------------------------
// The Python reader

/// Runs the reader with `input`; `None` without python3.
fn run_reader(mode: &str, table: &Path, input: &str) -> Option<Output> {
    let script = root().join("tests/format_reader.py");
    let child = Command::new("python3")
        .args(["-I", "-S"]) // nothing but the standard library, whatever is installed here
        .arg(script)
        .arg(mode)
        .arg(table)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            common::skip("no python3");
            return None;
        }
        other => other.unwrap(),
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // From a thread of its own, so that neither side waits for the other's full pipe. A reader that
    // refuses its file takes no input, which is no error of ours.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    Some(output)
}

fn read(mode: &str, table: &Path, input: &str) -> Option<String> {
    let output = run_reader(mode, table, input)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", table.display());
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The comparisons of all tables.
#[derive(Debug, Default)]
struct Compared {
    tables: usize,
    entries: usize,
    tombstones: usize,
    older_versions: usize,
    blocks: usize,
    present: usize,
    absent: usize,
    passed: usize,
    /// The expected number of false positives.
    predicted: f64,
    longest_value: usize,
    /// The level of each table in the manifest.
    levels: Vec<usize>,
}

impl Compared {
    /// Compares the library's view of a table with the reader's: all entries, up to 1,000 present keys, and
    /// some absent ones. False without python3.
    fn table(&mut self, path: &Path, absent_keys: usize) -> bool {
        let table = TableFile::open(path).unwrap();
        let entries: Vec<TableEntry> = table.entries().map(Result::unwrap).collect();
        let mut expected = String::new();
        for entry in &entries {
            let kind = u8::from(entry.kind == EntryKind::Put);
            let (key, value) = (hex(&entry.key), hex(&entry.value));
            writeln!(expected, "{key} {} {kind} {value}", entry.seq).unwrap();
        }
        let Some(list) = read("list", path, "") else { return false };
        assert!(list == expected, "{}: the reader sees other entries", path.display());

        let held: BTreeSet<&[u8]> = entries.iter().map(|entry| &*entry.key).collect();
        let mut keys: Vec<Vec<u8>> = held
            .iter()
            .step_by((held.len() / 1000).max(1))
            .take(1000)
            .map(|key| key.to_vec())
            .collect();
        let present = keys.len();
        let mut numbers = Numbers(path.to_string_lossy().len() as u64);
        let absent = std::iter::repeat_with(|| {
            let mut key = numbers.key();
            key.extend_from_slice(b"?");
            key
        });
        let mut met = BTreeSet::new();
        let absent = absent.filter(|key| !held.contains(key.as_slice()) && met.insert(key.clone()));
        keys.extend(absent.take(absent_keys));
        let lines: String = keys.iter().map(|key| hex(key) + "\n").collect();
        let Some(verdicts) = read("ask", path, &lines) else { return false };
        assert_eq!(verdicts.lines().count(), keys.len());
        for (number, (key, verdict)) in keys.iter().zip(verdicts.lines()).enumerate() {
            let expected = if table.verdict(key) == Verdict::No { "0" } else { "1" };
            assert_eq!(verdict, expected, "{}: key {}", path.display(), hex(key));
            assert!(number >= present || verdict == "1", "a key of the table is denied");
            self.passed += usize::from(number >= present && verdict == "1");
        }

        self.predicted += match table.filter() {
            FilterInfo::Active { predicted_rate, .. } => predicted_rate * absent_keys as f64,
            FilterInfo::None => absent_keys as f64,
            other => panic!("{}: {other:?}", path.display()),
        };
        self.tables += 1;
        self.entries += entries.len();
        self.tombstones += entries.iter().filter(|e| e.kind == EntryKind::Delete).count();
        self.older_versions += entries.len() - held.len();
        self.blocks += table.index().len();
        self.present += present;
        self.absent += keys.len() - present;
        let longest = entries.iter().map(|e| e.value.len()).max().unwrap();
        self.longest_value = self.longest_value.max(longest);
        true
    }

    fn store(&mut self, dir: &Path, absent_keys: usize) -> bool {
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|e| e == "sst"));
        paths.sort();
        self.manifest(dir, &paths) && paths.iter().all(|path| self.table(path, absent_keys))
    }

    /// Compares the reader's view of the manifest with the tables.
    fn manifest(&mut self, dir: &Path, tables: &[PathBuf]) -> bool {
        let Some(lines) = read("tables", dir, "") else { return false };
        assert_eq!(lines.lines().count(), tables.len(), "{lines}");
        for (line, path) in lines.lines().zip(tables) {
            let (level, said) = line.split_once(' ').unwrap();
            self.levels.push(level.parse().unwrap());
            let table = TableFile::open(path).unwrap();
            let (p, filter) = (table.properties(), table.filter().bytes());
            let expected = format!(
                "{} {} {} {} {} {filter} {}. {}.",
                p.id,
                p.file_bytes,
                p.entries,
                p.tombstones,
                p.keys,
                hex(&p.smallest),
                hex(&p.largest)
            );
            assert_eq!(said, expected, "{}", path.display());
        }
        true
    }

    /// The false positives are as many as the filters predict: within four standard deviations, and 5 % for
    /// the error of the prediction.
    fn assert_predicted(&self) {
        let (passed, predicted) = (self.passed as f64, self.predicted);
        let margin = 4.0 * predicted.sqrt() + predicted / 20.0;
        assert!((passed - predicted).abs() < margin, "{passed} passed, {predicted} predicted");
    }
}

fn options(seed: u64) -> Options {
    Options::new().seed(seed).background_threads(0).auto_compaction(false)
}

/// All kinds of changes; a snapshot keeps older versions of some.
fn fill(db: &Db, numbers: &mut Numbers, changes: usize) {
    let keys: Vec<Vec<u8>> = (0..changes / 2).map(|_| numbers.key()).collect();
    db.put("", "the empty key").unwrap();
    for number in 0..changes {
        let key = &keys[numbers.below(keys.len() as u64) as usize];
        let length = if number % 500 == 0 { 9000 } else { numbers.below(60) };
        match numbers.below(5) {
            0 => db.delete(key).unwrap(),
            _ => db.put(key, vec![number as u8; length as usize]).unwrap(),
        }
    }
}

/// The named policies, and the kind of each.
fn policies() -> [FilterPolicy; 3] {
    [FilterPolicy::classic(), FilterPolicy::default(), FilterPolicy::blocked()]
}

#[test]
fn the_reader_and_the_library_agree_on_flushed_tables() {
    for policy in policies() {
        let dir = common::tempdir();
        let db = options(1).filter(policy).open(dir.path()).unwrap();
        let mut numbers = Numbers(1);
        for _ in 0..2 {
            fill(&db, &mut numbers, 3000);
            let snapshot = db.snapshot().unwrap();
            fill(&db, &mut numbers, 1500);
            db.put("deleted after the snapshot", "").unwrap();
            db.flush().unwrap();
            drop(snapshot);
        }
        db.close().unwrap();
        let mut compared = Compared::default();
        if compared.store(dir.path(), 10_000) {
            println!("{policy}: {compared:?}");
            assert_eq!((compared.tables, compared.present, compared.absent), (2, 2000, 20_000));
            assert!(compared.tombstones > 100 && compared.blocks > 40);
            assert_eq!(compared.longest_value, 9000);
            compared.assert_predicted();
        }
    }
}

#[test]
fn the_reader_and_the_library_agree_on_compacted_tables_with_old_versions() {
    for policy in policies() {
        let dir = common::tempdir();
        let policy = policy.with_bits_per_key(4.5);
        let db = options(2).filter(policy).table_bytes(20 << 10).open(dir.path()).unwrap();
        let mut numbers = Numbers(2);
        fill(&db, &mut numbers, 5000);
        let early = db.snapshot().unwrap();
        let mut rewritten = Vec::new();
        for item in db.range::<&str>(..).unwrap().step_by(3) {
            rewritten.push(item.unwrap().0);
        }
        for (number, key) in rewritten.iter().enumerate() {
            if number % 2 == 0 {
                db.delete(key).unwrap();
            } else {
                db.put(key, "rewritten").unwrap();
            }
        }
        let late = db.snapshot().unwrap();
        for key in rewritten.iter().step_by(5) {
            db.put(key, "again").unwrap();
        }
        db.compact().unwrap();
        drop((early, late));
        let levels: Vec<usize> = db.tables().iter().map(|table| table.level).collect();
        assert!(levels.len() >= 3 && levels.iter().all(|&level| level == 6), "{levels:?}");
        db.close().unwrap();
        let mut compared = Compared::default();
        if compared.store(dir.path(), 4000) {
            println!("{policy}: {compared:?}");
            assert_eq!(compared.levels, levels);
            assert!(compared.older_versions > 500 && compared.tombstones > 100);
            compared.assert_predicted();
        }
    }
}

#[test]
fn the_reader_and_the_library_agree_on_odd_tables() {
    let longest_key = vec![b'k'; 65_535];
    let mut compared = Compared::default();
    let mut odd = vec![
        options(3).filter(FilterPolicy::none()).block_bytes(64),
        options(4).filter(FilterPolicy::default().with_geometry(1, 64)),
    ];
    let other_hash =
        [HashFunction::SipHash13, HashFunction::MurmurHash2, HashFunction::MurmurHash2];
    for (policy, hash) in policies().into_iter().zip(other_hash) {
        odd.push(options(5).filter(policy.with_bits_per_key(64.0)).block_bytes(1 << 20));
        odd.push(options(6).filter(policy.with_bits_per_key(0.3)));
        // Each kind over the hash that it does not have by default.
        odd.push(options(7).filter(policy.with_bits_per_key(9.7).with_hash(hash)));
    }
    let stores = odd.len();
    for options in odd {
        let dir = common::tempdir();
        let db = options.open(dir.path()).unwrap();
        db.put("", vec![1; 100_000]).unwrap();
        db.flush().unwrap(); // a table of the empty key
        db.put("between", "").unwrap();
        db.put(&longest_key, "the longest key").unwrap();
        db.put(&longest_key[1..], "its neighbour").unwrap();
        db.delete("between").unwrap();
        for number in 0..200_u64 {
            db.put(number.to_be_bytes(), vec![0xff; number as usize]).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        if !compared.store(dir.path(), 500) {
            return;
        }
    }
    assert_eq!((compared.tables, compared.longest_value), (2 * stores, 100_000));
    println!("{compared:?}");
}

#[test]
fn the_reader_and_the_library_agree_on_the_fixture() {
    let mut compared = Compared::default();
    if compared.store(&root().join("tests/fixtures/store-v1"), 300) {
        println!("{compared:?}");
        assert!(compared.tables > 3);
    }
}

// ---------------------------------------------------------------------------------------------
// The worked example

/// The files of the example, by name: in `format.md`, code blocks that begin with "```hex NAME" and have
/// lines of offset, bytes and explanation, two spaces apart.
fn example_files() -> BTreeMap<String, Vec<u8>> {
    let text = std::fs::read_to_string(root().join("format.md")).unwrap();
    let mut files = BTreeMap::new();
    for block in text.split("\n```hex ").skip(1) {
        let (block, _) = block.split_once("\n```").unwrap();
        let (name, lines) = block.split_once('\n').unwrap();
        let mut bytes: Vec<u8> = Vec::new();
        for line in lines.lines() {
            let mut columns = line.split("  ");
            let offset = columns.next().unwrap();
            assert_eq!(usize::from_str_radix(offset, 16), Ok(bytes.len()), "{name}: {line}");
            let column = columns.next().unwrap().split(' ');
            bytes.extend(column.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
        }
        assert!(files.insert(name.to_owned(), bytes).is_none(), "{name} twice");
    }
    assert_eq!(files.len(), 6);
    files
}

/// Compares the library's bytes with the example. If they differ, prints the example's lines with the new
/// bytes.
fn assert_example(name: &str, written: &[u8]) {
    if example_files()[name] == written {
        return;
    }
    let text = std::fs::read_to_string(root().join("format.md")).unwrap();
    let (_, block) = text.split_once(&format!("\n```hex {name}\n")).unwrap();
    let (block, _) = block.split_once("\n```").unwrap();
    let mut at = 0;
    for line in block.lines() {
        let (_, line) = line.split_once("  ").unwrap();
        let (bytes, explanation) = line.split_at_checked(47).unwrap_or((line, ""));
        let end = written.len().min(at + bytes.trim_end().len().div_ceil(3));
        let column: Vec<String> = written[at..end].iter().map(|b| format!("{b:02x}")).collect();
        println!("{at:04x}  {:47}{explanation}", column.join(" "));
        at = end;
    }
    panic!(
        "{name} is other bytes now, {} behind those lines: {:02x?}",
        written.len() - at,
        &written[at..]
    );
}

/// The start of the manifest's second edit: the flush.
const FLUSH_EDIT: usize = 111;

/// The start and the end of the filter in the example's table.
const FILTER: usize = 64;
const INDEX: usize = 205;

/// The filter of the example, small enough to compute by hand.
fn textbook() -> FilterPolicy {
    FilterPolicy::classic().with_geometry(29, 7)
}

fn example(policy: FilterPolicy, dir: &Path) -> Db {
    Options::new().seed(1).background_threads(0).filter(policy).open(dir).unwrap()
}

fn write_example(db: &Db) {
    let mut batch = Batch::new();
    batch.put("apple", "red").put("apricot", "orange");
    db.write(batch).unwrap();
    db.delete("banana").unwrap();
}

fn contents(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let items = db.range::<&str>(..).unwrap().map(Result::unwrap);
    items.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn the_worked_example_is_what_the_library_writes() {
    let dir = common::tempdir();
    let file = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let db = example(textbook(), dir.path());
    write_example(&db);
    db.flush().unwrap();
    for name in ["CURRENT", "000004.sst", "MANIFEST-000002"] {
        assert_example(name, &file(name));
    }
    drop(db);

    let dir = common::tempdir();
    let file = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let db = example(textbook(), dir.path());
    write_example(&db);
    db.close().unwrap();
    assert_example("CURRENT", &file("CURRENT"));
    assert_example("000001.log", &file("000001.log"));
    assert!(file("MANIFEST-000002") == example_files()["MANIFEST-000002"][..FLUSH_EDIT]);
}

#[test]
fn the_worked_filters_of_the_other_kinds_are_what_the_library_writes() {
    for (name, policy) in
        [("blocked filter", FilterPolicy::blocked()), ("ribbon filter", FilterPolicy::default())]
    {
        let dir = common::tempdir();
        let db = example(policy, dir.path());
        write_example(&db);
        db.flush().unwrap();
        drop(db);
        let path = dir.path().join("000004.sst");
        let table = TableFile::open(&path).unwrap();
        let filter = &std::fs::read(&path).unwrap()[FILTER..];
        assert_example(name, &filter[..table.filter().bytes()]);
        for key in ["apple", "apricot", "banana"] {
            assert_eq!(table.verdict(key), Verdict::Maybe, "{name}: {key}");
        }
        assert_eq!(table.verdict("avid"), Verdict::No, "{name}");
        Compared::default().store(dir.path(), 1000);
    }
}

/// The upper half of a product, which maps hashes to blocks and rows.
fn high(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// The tables beside the bytes, computed from the bytes and the formulas.
#[test]
fn the_intermediate_values_of_the_worked_filters_are_right() {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |z: u64| Numbers(z.wrapping_sub(GOLDEN)).next(); // SplitMix64 adds GOLDEN, then mixes
    let list = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.map(|n| n.to_string()).collect::<Vec<_>>().join(", ")
    };
    let files = example_files();
    let text = std::fs::read_to_string(root().join("format.md")).unwrap();
    let says = |row: String| assert!(text.contains(&row), "not in format.md: {row}");

    for key in ["apple", "apricot", "banana", "avid", "arcade"] {
        let h1 = murmurhash2::murmur64a(key.as_bytes(), 0);
        let h2 = mix(h1.wrapping_add(GOLDEN));
        let (start, step) = (h1 % 29, h2 % 29);
        let positions = list(&mut (0..7).map(|i| (start + i * step) % 29));
        says(format!("\n| `{key}` | {h1:#018x} | {h2:#018x} | {start} | {step} | {positions} |\n"));
    }

    let (blocked, ribbon) = (&files["blocked filter"], &files["ribbon filter"]);
    let field = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let manifest = &files["MANIFEST-000002"];
    let hash_key: [u8; 16] = manifest[0x5f..0x6f].try_into().unwrap();
    let sip = siphasher::sip::SipHasher13::new_with_key(&hash_key);
    assert_eq!(field(ribbon, 24), sip.hash(b"criba: which key"));
    let place: Vec<u8> = [4_u64, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(field(ribbon, 16), sip.hash(&[b"criba: the salt ", &place[..]].concat()));
    assert_eq!(blocked[16..32], ribbon[16..32]);
    for key in ["apple", "apricot", "banana", "avid"] {
        let hash = sip.hash(key.as_bytes());
        let h = mix(hash ^ field(blocked, 16));
        let g = h.wrapping_mul(GOLDEN);
        says(format!("\n| `{key}` | {hash:#018x} | {h:#018x} | {g:#018x} |\n"));

        let bits: Vec<u64> = (0..8).map(|j| g >> (16 + 6 * j) & 63).collect();
        let zero = |j: &u64| field(blocked, 128 + 8 * *j as usize) >> bits[*j as usize] & 1 == 0;
        let zeros = list(&mut (0..8).filter(zero));
        let zeros = if zeros.is_empty() { "none".into() } else { format!("in words {zeros}") };
        let block = high(h, field(blocked, 40) / 512);
        says(format!("\n| `{key}` | {block} | {} | {zeros} |\n", list(&mut bits.iter().copied())));

        let (start, columns) = (high(h, field(ribbon, 40) - 63), field(ribbon, 48) as usize);
        let coefficient = |bit: u64| (g | 1) >> bit & 1;
        let wide = field(ribbon, 64) as usize;
        let row = |row: u64, j: usize| {
            let segment = row as usize / 64;
            let word = segment * columns + segment.min(wide) + j;
            field(ribbon, 128 + 8 * word) >> (row % 64) & 1
        };
        assert!(start / 64 + 1 >= wide as u64, "the probe reads one column more");
        let parity = |j| (0..64).fold(0, |sum, bit| sum ^ coefficient(bit) & row(start + bit, j));
        let parities = list(&mut (0..columns).map(parity)).replace(',', "");
        says(format!("\n| `{key}` | {start} | {:#018x} | {parities} |\n", g | 1));
    }
}

#[test]
fn the_worked_example_is_read_as_it_says() {
    let files = example_files();
    let dir = common::tempdir();
    let path = dir.path().join("000004.sst");
    std::fs::write(&path, &files["000004.sst"]).unwrap();
    let table = TableFile::open(&path).unwrap();
    let entries: Vec<_> = table
        .entries()
        .map(Result::unwrap)
        .map(|e| (e.key.to_vec(), e.seq, e.kind, e.value.to_vec()))
        .collect();
    assert_eq!(
        entries,
        [
            (b"apple".to_vec(), 1, EntryKind::Put, b"red".to_vec()),
            (b"apricot".to_vec(), 2, EntryKind::Put, b"orange".to_vec()),
            (b"banana".to_vec(), 3, EntryKind::Delete, vec![]),
        ]
    );
    for key in ["apple", "apricot", "banana", "arcade"] {
        assert_eq!(table.verdict(key), Verdict::Maybe, "{key}");
    }
    assert_eq!(table.verdict("avid"), Verdict::No);
    let FilterInfo::Active { geometry, predicted_rate, .. } = table.filter() else {
        panic!("{:?}", table.filter());
    };
    assert_eq!((geometry.m, geometry.k), (29, 7));
    assert!((predicted_rate - 37.0 / 841.0).abs() < 1e-12);
    Compared::default().table(&path, 1000);
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
    store_of(&files, dir.path(), FLUSH_EDIT, &files["000001.log"]);
    let db = common::options().background_threads(0).open(dir.path()).unwrap();
    assert_eq!((db.recovery().logs, db.recovery().changes), (1, 3));
    assert_eq!(db.recovery().lost_tail, None);
    let expected =
        [(b"apple".to_vec(), b"red".to_vec()), (b"apricot".to_vec(), b"orange".to_vec())];
    assert_eq!(contents(&db), expected);
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

// ---------------------------------------------------------------------------------------------
// Damage, as format.md says what becomes of it

#[test]
fn every_flipped_bit_of_the_worked_table_is_noticed_but_in_the_padding() {
    let sound = &example_files()["000004.sst"];
    let padding = 53..FILTER;
    let dir = common::tempdir();
    let path = dir.path().join("000004.sst");
    let (mut refused, mut degraded, mut unread) = (0, 0, 0);
    for bit in 0..sound.len() * 8 {
        let at = bit / 8;
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
    assert_eq!((degraded, unread), ((INDEX - FILTER) * 8, 11 * 8));
    assert_eq!(refused, (sound.len() - INDEX) * 8);
    println!("{} bits flipped: {refused} refused, {degraded} degraded", sound.len() * 8);

    // The reader, which a process each makes slow, at every 41st byte.
    for at in (0..sound.len()).step_by(41) {
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&path, &flipped).unwrap();
        let Some(output) = run_reader("list", &path, "") else { return };
        assert_eq!(output.status.success(), padding.contains(&at), "byte {at}");
    }
}

/// One flipped bit in each byte of the log. A damaged header, and damage before a frame that proves it
/// synced, are refused; other damage is dropped and reported.
#[test]
fn a_flipped_bit_in_the_worked_log_is_refused_or_reported_and_never_believed() {
    let files = example_files();
    let log = &files["000001.log"];
    let (mut refused, mut reported) = (0, 0);
    for at in 0..log.len() {
        let dir = common::tempdir();
        let mut flipped = log.clone();
        flipped[at] ^= 1 << (at % 8);
        store_of(&files, dir.path(), FLUSH_EDIT, &flipped);
        match common::options().background_threads(0).open(dir.path()) {
            Err(Error::Corrupt { path, .. }) => {
                assert!(at < 40 && path.ends_with("000001.log"), "byte {at}");
                refused += 1;
            }
            Err(other) => panic!("byte {at}: {other}"),
            Ok(db) => {
                // All frames say that 40 bytes were synced when they were written.
                let mut starts = [40, 94, 129].into_iter();
                let record = starts.rfind(|&start| start <= at as u64).unwrap();
                let lost = db.recovery().lost_tail.as_ref().expect("it is reported");
                let written = common::written(&flipped).len() as u64;
                assert_eq!((lost.offset, lost.bytes), (record, written - record));
                assert_eq!(contents(&db).len(), if record == 40 { 0 } else { 2 });
                reported += 1;
            }
        }
    }
    assert_eq!((refused, reported), (40, log.len() - 40));
}

/// A log written by hand, from format.md.
struct Log {
    number: u64,
    bytes: Vec<u8>,
}

const FULL: u8 = 1;
const END: u8 = 5;

impl Log {
    fn new(number: u64) -> Self {
        let mut bytes = b"cribaWAL\x01\0\0\0\0\0\0\0".to_vec();
        bytes.extend(number.to_le_bytes());
        bytes.extend(0x910a_2dec_8902_5cc1_u64.to_le_bytes());
        bytes.extend([0; 4]);
        let sum = Self::checksum(number, 0, &bytes);
        bytes.extend(sum.to_le_bytes());
        Self { number, bytes }
    }

    fn checksum(id: u64, offset: usize, bytes: &[u8]) -> u32 {
        crc32fast::hash(&[&id.to_le_bytes(), &offset.to_le_bytes(), bytes].concat())
    }

    fn frame(mut self, kind: u8, seq: u64, synced: usize, payload: &[u8]) -> Self {
        let mut covered = (payload.len() as u16).to_le_bytes().to_vec();
        covered.push(kind);
        covered.extend((self.number as u32).to_le_bytes());
        covered.extend(seq.to_le_bytes());
        covered.extend((synced as u64).to_le_bytes());
        covered.extend(payload);
        let sum = Self::checksum(self.number, self.bytes.len(), &covered);
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
    store_of(&files, dir.path(), FLUSH_EDIT, &[]);
    for log in logs {
        std::fs::write(dir.path().join(format!("{:06}.log", log.number)), &log.bytes).unwrap();
    }
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
    let log = || Log::new(1).put(1, 40, b'a');
    recovers(&[Log::new(1)], "", None);
    recovers(&[log()], "a", None);
    recovers(&[log().zeros(70_000)], "a", None);
    recovers(&[log().zeros(10).frame(FULL, 2, 40, b"")], "a", Some(71));
    // Damage in the first of two records: it depends on what the second one knew.
    recovers(&[log().put(2, 40, b'b').flip(50)], "", Some(40));
    refused(&[log().put(2, 71, b'b').flip(50)]);
    refused(&[log().put(2, 71, b'b').flip(10)]);
    // Damage in the last record: a later log may bear witness, its own frames cannot.
    recovers(&[log().put(2, 71, b'b').flip(80)], "a", Some(71));
    recovers(&[log().put(2, 71, b'b').flip(80), Log::new(3)], "a", Some(71));
    recovers(&[log().put(2, 71, b'b').flip(80), Log::new(3).put(3, 0, b'c')], "a", Some(71));
    refused(&[log().put(2, 71, b'b').flip(80), Log::new(3).put(3, 40, b'c')]);
}

#[test]
fn sequence_numbers_and_end_frames_join_the_logs() {
    let log = || Log::new(1).put(1, 40, b'a');
    let next = |number: u64| number.to_le_bytes();
    recovers(&[log(), Log::new(3).put(2, 0, b'b')], "ab", None);
    recovers(&[log().frame(END, 2, 71, &next(3)), Log::new(3).put(2, 40, b'b')], "ab", None);
    // A record is missing between the two.
    recovers(&[log(), Log::new(3).put(3, 0, b'c')], "a", Some(40));
    refused(&[log(), Log::new(3).put(3, 40, b'c')]);
    recovers(&[log().put(3, 40, b'c')], "a", Some(71));
    // What an End frame or the manifest names must come next; only an empty log may come before.
    let ended = || log().frame(END, 2, 71, &next(5));
    recovers(&[ended(), Log::new(3), Log::new(5).put(2, 40, b'b')], "ab", None);
    let missing = |logs: &[Log]| {
        let error = recover(logs).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }), "{error}");
    };
    missing(&[ended()]);
    missing(&[ended(), Log::new(6).put(2, 40, b'b')]);
    // Behind an End frame nothing is read.
    recovers(&[log().frame(END, 2, 71, &next(0)).put(2, 71, b'b')], "a", None);
}

/// Byte 8 is in the version, byte 12 in the features, byte 24 in the store's id.
#[test]
fn the_header_of_every_log_is_checked_in_one_order() {
    fn log() -> Log {
        Log::new(1).put(1, 40, b'a')
    }
    fn damaged() -> Log {
        log().put(2, 71, b'b').flip(80)
    }
    let unsupported = |logs: &[Log]| {
        let error = recover(logs).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    };
    let third = || Log::new(3).put(2, 0, b'b');
    for (at, byte) in [(8, 2), (12, 1)] {
        unsupported(&[log(), third().with_header(at, byte, 3)]);
        // The checksum takes the number of the name: this is log 1 of a later version, misplaced.
        let misplaced = Log { number: 3, ..Log::new(1).with_header(at, byte, 1) };
        refused(&[log().frame(END, 2, 71, &3_u64.to_le_bytes()), misplaced]);
    }
    // Also behind damage, and before the log that must come.
    let ended = || log().frame(END, 2, 71, &5_u64.to_le_bytes());
    for first in [log, damaged] {
        refused(&[first(), third().with_header(24, 7, 3)]);
        refused(&[first(), third().flip(24)]);
        unsupported(&[first(), third().with_header(8, 2, 3)]);
    }
    refused(&[ended(), Log::new(3).with_header(24, 7, 3), Log::new(5).put(2, 40, b'b')]);
    // A log whose making failed has no frame, and perhaps no header.
    recovers(&[damaged(), Log::new(3).flip(24)], "a", Some(71));
    recovers(&[ended(), Log::new(3).flip(24), Log::new(5).put(2, 40, b'b')], "ab", None);
}

/// Padding reserves the place of an end frame: up to 34 bytes before it may stay unused.
#[test]
fn a_log_closed_near_the_end_of_a_block_is_whole() {
    for left in 20..40 {
        let dir = common::tempdir();
        let db = options(1).open(dir.path()).unwrap();
        // Header, frame header, and 6 bytes of batch before the value.
        db.put("k", vec![1; 32_768 - 40 - 27 - 6 - left]).unwrap();
        db.close().unwrap();
        let db = options(1).open(dir.path()).unwrap();
        assert_eq!(db.recovery().lost_tail, None, "{left} bytes left in the block");
    }
}

/// The same with a later synced log: a sound store must not be refused.
#[test]
fn a_log_that_ended_near_the_end_of_a_block_does_not_stop_a_store_from_opening() {
    let value = vec![1; 32_768 - 40 - 27 - 6 - 30];
    let mut batch = vec![1, 1, b'a'];
    batch.extend([(value.len() & 0x7f) as u8 | 0x80, (value.len() >> 7 & 0x7f) as u8 | 0x80]);
    batch.push((value.len() >> 14) as u8);
    batch.extend(&value);
    let ended = Log::new(1).frame(FULL, 1, 40, &batch);
    assert_eq!(ended.bytes.len(), 32_768 - 30);
    let ended = ended.zeros(30).frame(END, 2, 40, &3_u64.to_le_bytes());
    recovers(&[ended, Log::new(3).put(2, 40, b'b')], "ab", None);
}

/// Rebuilt repeatedly, so that each table has a filter within and another beside it.
#[test]
fn the_reader_and_the_library_agree_on_filters_beside_their_tables() {
    let dir = common::tempdir();
    let db = options(8).open(dir.path()).unwrap();
    let mut numbers = Numbers(8);
    for _ in 0..2 {
        fill(&db, &mut numbers, 1000);
        db.flush().unwrap();
    }
    db.close().unwrap();
    for (round, policy) in policies().into_iter().chain([FilterPolicy::none()]).enumerate() {
        let db = options(8).open(dir.path()).unwrap();
        db.rebuild_filters(&policy.with_bits_per_key(if round == 3 { 0.0 } else { 6.0 })).unwrap();
        db.close().unwrap();
        let mut compared = Compared::default();
        if compared.store(dir.path(), 2000) {
            println!("{policy}: {compared:?}");
            assert_eq!(compared.tables, 2);
            compared.assert_predicted();
        }
    }
}

#[test]
fn the_reader_and_the_library_agree_on_filters_with_prefixes() {
    let extractors = [
        criba::PrefixExtractor::until(b'/'),
        criba::PrefixExtractor::fixed(3),
        criba::PrefixExtractor::fixed(300), // longer than any key
    ];
    for (policy, extractor) in policies().into_iter().zip(extractors) {
        let dir = common::tempdir();
        let db = options(9).filter(policy).prefix(extractor).open(dir.path()).unwrap();
        fill(&db, &mut Numbers(9), 2000);
        db.flush().unwrap();
        db.close().unwrap();
        let mut compared = Compared::default();
        if compared.store(dir.path(), 2000) {
            println!("{policy}, {extractor}: {compared:?}");
            assert_eq!(compared.tables, 1);
            compared.assert_predicted();
        }
    }
}
