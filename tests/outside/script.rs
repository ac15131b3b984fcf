//! The calls of the writer, the same in each run, and the contents that they leave.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use criba::{Batch, Db, Durability, Options};

use crate::common;

pub(crate) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// The writes of the template of all stores, and those of a script at most.
pub(crate) const BASE: u64 = 60;
const MOST: u64 = 120;

/// The keys of the second process.
const OTHER: &str = "other ";

/// One call of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Open,
    /// A put, a batch or a deletion, by number.
    Write {
        number: u64,
        synced: bool,
    },
    Sync,
    Flush,
    Compact,
    RebuildFilters,
    Checkpoint,
    /// A few lookups, and a scan of everything.
    Read,
    Close,
}

impl Step {
    /// Whether success says that writes are durable. A close syncs, too.
    pub(crate) fn promises(self) -> bool {
        matches!(self, Self::Write { synced: true, .. } | Self::Sync | Self::Close)
    }

    /// Whether the call cannot succeed without a new file in the store. A write comes before each flush.
    pub(crate) fn creates(self) -> bool {
        matches!(self, Self::Flush | Self::RebuildFilters)
    }
}

/// A script, with the number of compaction threads.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) threads: usize,
    pub(crate) steps: Vec<Step>,
}

impl Script {
    /// Everything a store does, with each task within a call.
    pub(crate) fn everything() -> Self {
        let mut steps = vec![Step::Open, Step::Read];
        let mut number = BASE;
        let mut then = |writes: u64, more: &[Step]| {
            for _ in 0..writes {
                // A sync or a close always has something to make durable.
                steps.push(Step::Write { number, synced: number % 4 == 3 });
                number += 1;
            }
            steps.extend(more);
        };
        then(6, &[Step::Sync]);
        then(3, &[Step::Flush]);
        then(4, &[Step::Read, Step::RebuildFilters]);
        then(2, &[Step::Checkpoint]);
        then(10, &[Step::Compact]);
        then(5, &[Step::Read]);
        then(3, &[Step::Flush]);
        then(2, &[Step::Read, Step::Close]);
        Self { threads: 0, steps }
    }

    /// A shorter one, for runs with threads.
    pub(crate) fn with_threads() -> Self {
        let mut script = Self::everything();
        script.threads = 2;
        let long = [Step::RebuildFilters, Step::Compact];
        script.steps.retain(|step| !long.contains(step));
        script
    }
}

pub(crate) fn options(threads: usize) -> Options {
    common::options()
        .background_threads(threads)
        .create_if_missing(false)
        .memtable_bytes(1536)
        .table_bytes(2048)
        .block_bytes(256)
        .level_base_bytes(4096)
        .l0_compaction_trigger(2)
        // Tables are opened again and again, and each lookup reads.
        .max_open_files(2)
        .cache_bytes(0)
}

fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    value.resize(8 + (number * 37 % 180) as usize, number as u8);
    value
}

/// Each third write is a batch, each third a deletion.
fn changes(number: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let own = format!("write {number:04}").into_bytes();
    match number % 3 {
        0 => vec![(own, Some(value(number)))],
        1 => {
            let again = |number| format!("again {}", number % 7).into_bytes();
            vec![
                (own, Some(value(number))),
                (again(number), Some(value(number))),
                (again(number + 3), None),
            ]
        }
        _ => vec![(doomed(number), None)],
    }
}

/// The key that a deletion deletes.
fn doomed(number: u64) -> Vec<u8> {
    format!("doomed {number:04}").into_bytes()
}

/// Whether a store has this write.
fn has(found: &Contents, number: u64) -> bool {
    match number % 3 {
        2 => !found.contains_key(&doomed(number)),
        _ => found.contains_key(format!("write {number:04}").as_bytes()),
    }
}

pub(crate) fn apply(contents: &mut Contents, number: u64) {
    for (key, value) in changes(number) {
        match value {
            Some(value) => contents.insert(key, value),
            None => contents.remove(&key),
        };
    }
}

/// The contents of the template.
pub(crate) fn base() -> Contents {
    let mut contents = Contents::new();
    contents.extend((0..BASE + MOST).map(|number| (doomed(number), b"still here".to_vec())));
    (0..BASE).for_each(|number| apply(&mut contents, number));
    contents
}

/// Makes the template: a store with tables, and with writes in its log.
pub(crate) fn make_base(dir: &Path) {
    let db = options(0).create_if_missing(true).open(dir).unwrap();
    for number in 0..BASE + MOST {
        db.put(doomed(number), "still here").unwrap();
    }
    for number in 0..BASE {
        write(&db, number, false).unwrap();
    }
    db.close().unwrap();
}

fn write(db: &Db, number: u64, synced: bool) -> criba::Result<()> {
    let durability = if synced { Durability::Synced } else { Durability::Buffered };
    let changes = changes(number);
    match changes.as_slice() {
        [(key, Some(value))] => db.put_with(key, value, durability),
        [(key, None)] => db.delete_with(key, durability),
        _ => {
            let mut batch = Batch::new();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                };
            }
            db.write_with(batch, durability)
        }
    }
}

/// A call that failed, or a lookup that found something else than was written.
#[derive(Debug)]
pub(crate) enum Failure {
    Error(criba::Error),
    WrongAnswer(String),
}

impl From<criba::Error> for Failure {
    fn from(error: criba::Error) -> Self {
        Self::Error(error)
    }
}

/// Makes one call. `acked` is what the lookups must find.
pub(crate) fn make(
    step: Step,
    db: &mut Option<Db>,
    open: &mut dyn FnMut() -> criba::Result<Db>,
    copy: &Path,
    acked: &Contents,
) -> Result<(), Failure> {
    if step == Step::Open {
        *db = Some(open()?);
        return Ok(());
    }
    let Some(store) = db else { return Err(criba::Error::Closed.into()) };
    match step {
        Step::Open => {}
        Step::Write { number, synced } => write(store, number, synced)?,
        Step::Sync => store.sync()?,
        Step::Flush => store.flush()?,
        Step::Compact => store.compact()?,
        Step::RebuildFilters => {
            store.rebuild_filters(&common::policy().with_bits_per_key(6.0))?;
        }
        Step::Checkpoint => store.checkpoint(copy)?,
        Step::Read => {
            for (key, value) in acked.iter().step_by(9) {
                let found = store.get(key)?;
                if found.as_deref() != Some(value.as_slice()) {
                    let key = String::from_utf8_lossy(key);
                    return Err(Failure::WrongAnswer(format!("{key}: {found:?}")));
                }
            }
            let found = contents(store)?;
            if found != *acked {
                let counts = format!("{} entries, not {}", found.len(), acked.len());
                return Err(Failure::WrongAnswer(counts));
            }
        }
        Step::Close => db.take().expect("it is open").close()?,
    }
    Ok(())
}

pub(crate) fn contents(db: &Db) -> criba::Result<Contents> {
    db.iter().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

pub(crate) fn other_key(number: u64) -> String {
    format!("{OTHER}{number:06}")
}

/// What the stores may hold besides the base.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Writes that must be there, in the order of their calls.
    pub(crate) must: BTreeSet<u64>,
    /// Writes that may be there. If one is, so are all before it that succeeded.
    pub(crate) may: BTreeSet<u64>,
    /// Of `may`: calls that failed. These need not be there when later ones are.
    pub(crate) failed: BTreeSet<u64>,
    /// The synced puts that the second process got acknowledged.
    pub(crate) other: u64,
}

/// Says what is wrong with the contents of a store.
pub(crate) fn check(found: &Contents, base: &Contents, expected: &Expected) -> Result<(), String> {
    let is_other = |key: &Vec<u8>| key.starts_with(OTHER.as_bytes());
    let mut own = found.clone();
    own.retain(|key, _| !is_other(key));
    for number in 0..expected.other {
        if !found.contains_key(other_key(number).as_bytes()) {
            return Err(format!("lost: put {number} of the second process"));
        }
    }
    let others = (found.len() - own.len()) as u64;
    // One put may have been done and not acknowledged.
    if others > expected.other + 1 {
        return Err(format!("{others} puts of the second process, not {}", expected.other));
    }
    let mut model = base.clone();
    let mut gap = None;
    for &number in expected.must.union(&expected.may) {
        if has(&own, number) {
            if let Some(gap) = gap {
                return Err(format!("write {number} is there without {gap}"));
            }
            apply(&mut model, number);
        } else if expected.must.contains(&number) {
            return Err(format!("lost: write {number}"));
        } else if !expected.failed.contains(&number) {
            gap = gap.or(Some(number));
        }
    }
    if own != model {
        let wrong = own.iter().find(|(key, value)| model.get(*key) != Some(value));
        let missing = model.keys().find(|key| !own.contains_key(*key));
        let name = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
        return Err(format!(
            "{} entries, not {}; wrong: {:?}, missing: {:?}",
            own.len(),
            model.len(),
            wrong.map(|(key, _)| name(key)),
            missing.map(name)
        ));
    }
    Ok(())
}
