//! The required behaviour of a store on a damaged disk.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use criba::vfs::{SimDisk, SimVfs, Vfs};
use criba::{Db, Error, Event, FilterInfo, Finding, Options, Reader, Verification, verify_with};

use crate::fixture::{DIR, FIXTURE, KEYS, Kind, Map, key, name, options};
use crate::forge::{Log, Table};

/// The memory limit of a case, in bytes. A sound store of this size needs less than a hundredth of it.
const MEMORY: u64 = 8 << 20;

/// A damaged disk.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) what: String,
    /// The files that an error may name.
    pub(crate) files: Vec<String>,
    pub(crate) disk: SimDisk,
    /// Whether every checksum was corrected. Then the store may believe the forgery.
    pub(crate) forged: bool,
}

/// The outcomes, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Every answer is right.
    Right,
    /// The same, but a filter is degraded: reported, counted, and found by `verify`.
    Degraded,
    /// Unsynced writes are lost, and reported.
    Dropped,
    /// The log ends with a whole record that is not the last. Nothing reveals that there were more.
    Shorter,
    /// Some reads fail and name the file. All others are right.
    Failed,
    /// The store does not open, and reports why; no file has changed.
    Refused,
    /// The store believes a forgery that contradicts nothing.
    Believed,
}

impl Outcome {
    pub(crate) fn as_text(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Degraded => "right with a filter degraded",
            Self::Dropped => "with an unsynced end dropped and reported",
            Self::Shorter => "cut behind a whole record",
            Self::Failed => "right but for reads that failed by name",
            Self::Refused => "refused by name",
            Self::Believed => "believed",
        }
    }
}

/// Memtables so small that the log fills several: a refusal may come after some are tables.
fn small() -> Options {
    options().memtable_bytes(1024)
}

impl Case {
    pub(crate) fn new(what: impl Into<String>, file: &str, disk: SimDisk) -> Self {
        Self { what: what.into(), files: vec![file.to_owned()], disk, forged: false }
    }

    pub(crate) fn forged(self) -> Self {
        Self { forged: true, ..self }
    }

    pub(crate) fn blaming(mut self, file: &str) -> Self {
        self.files.push(file.to_owned());
        self
    }

    /// Whether an error may name a file: it is damaged or missing.
    fn may_blame(&self, path: &Path) -> bool {
        self.files.contains(&name(path)) || self.disk.read(path).is_none()
    }

    /// An error must name the file, also in its text, and an offset.
    fn check_error(&self, error: &Error) {
        let (path, offset) = match error {
            Error::Corrupt { path, offset, .. } => (path, *offset),
            Error::Missing { path, .. } | Error::Unsupported { path, .. } => (path, 0),
            Error::Background { cause } => return self.check_error(cause),
            other => panic!("{}: {other:?}", self.what),
        };
        assert!(self.may_blame(path), "{}: {error} blames another file", self.what);
        assert!(error.to_string().contains(&name(path)), "{}: {error}", self.what);
        let length = FIXTURE.disk.read(path).unwrap_or_default().len();
        let length = length.max(self.disk.read(path).unwrap_or_default().len());
        assert!(offset <= length as u64, "{}: {error}: beyond the file", self.what);
    }

    fn same(&self, vfs: &SimVfs, action: &str) {
        // Except for an empty lock file, which reading needs.
        let files = |disk: &SimDisk| {
            let files = disk.files().map(|(path, bytes)| (path.to_owned(), bytes.to_vec()));
            files
                .filter(|(path, bytes)| !(path.ends_with("LOCK") && bytes.is_empty()))
                .collect::<Vec<_>>()
        };
        let same = files(&vfs.disk()) == files(&self.disk);
        assert!(same, "{}: {action} changed a file", self.what);
    }

    pub(crate) fn verify(&self) -> Option<Verification> {
        let vfs = SimVfs::on(self.disk.clone());
        let found = verify_with(DIR, &(Arc::new(vfs.clone()) as Arc<dyn Vfs>), |_, _| {});
        self.same(&vfs, "verify");
        let found = found.inspect_err(|error| match error {
            Error::NotAStore { .. } => {}
            Error::Unsupported { path, .. } => {
                assert!(self.may_blame(path), "{}: {error}", self.what);
            }
            other => panic!("{}: {other}", self.what),
        });
        let found = found.ok();
        for finding in found.iter().flat_map(|found| &found.findings) {
            assert!(self.may_blame(&finding.path), "{}: {finding}", self.what);
        }
        found
    }

    fn outcome(&self) -> Outcome {
        let found = self.verify();
        let unsound = found.as_ref().is_none_or(|found| !found.is_sound());
        let vfs = SimVfs::on(self.disk.clone());
        let reported = Arc::<Mutex<Vec<PathBuf>>>::default();
        let events = Arc::clone(&reported);
        let listener = move |event: &Event| {
            if let Event::FilterDegraded { path, .. } = event {
                events.lock().unwrap().push(path.clone());
            }
        };
        let opened = small().on_event(listener).vfs(Arc::new(vfs.clone())).open(DIR);
        let db = match opened {
            Ok(db) => db,
            Err(error) => {
                self.check_error(&error);
                self.same(&vfs, "a refusal");
                assert!(unsound, "{}: refused, but verify finds nothing", self.what);
                self.check_read_only(None);
                return Outcome::Refused;
            }
        };
        let answers = Answers::of(&db, self);
        self.check_read_only(Some(&answers));
        let (outcome, state) = self.compare(&db, &answers);
        let degraded = self.check_filters(&db, &reported.lock().unwrap());
        let outcome = if degraded { outcome.max(Outcome::Degraded) } else { outcome };
        // A filter of a kind that stores no longer have is degraded, and a note.
        let is_old = |note: &Finding| note.what.contains("which stores no longer have");
        let noted = found.as_ref().is_some_and(|found| found.notes.iter().any(is_old));
        if answers.failed || degraded {
            let is_found = unsound || (noted && !answers.failed);
            assert!(is_found, "{}: {outcome:?}, but verify finds nothing", self.what);
        }
        if outcome == Outcome::Dropped {
            let noted = found.is_some_and(|found| !found.notes.is_empty());
            assert!(noted, "{}: dropped, but verify does not tell", self.what);
        }
        self.go_on(db, &vfs, outcome, state);
        outcome
    }

    /// A store that is only read answers the same, or is refused as well.
    fn check_read_only(&self, expected: Option<&Answers>) {
        let vfs = SimVfs::on(self.disk.clone());
        let opened = small().vfs(vfs.clone()).open_read_only(DIR);
        self.same(&vfs, "reading");
        assert!(
            vfs.disk().read(Path::new(DIR).join("LOCK"))
                == self.disk.read(Path::new(DIR).join("LOCK"))
        );
        match (opened, expected) {
            (Ok(store), Some(expected)) => {
                let answers = Answers::of(&store, self);
                assert_eq!(&answers, expected, "{}: only read", self.what);
            }
            (Err(error), None) => self.check_error(&error),
            (Ok(_), None) => panic!("{}: refused, but not if only read", self.what),
            (Err(error), Some(_)) => panic!("{}: refused if only read: {error}", self.what),
        }
    }

    /// The state of the history that the answers show.
    fn compare(&self, db: &Db, answers: &Answers) -> (Outcome, Map) {
        let states = &FIXTURE.states;
        let records = match &db.recovery().lost_tail {
            Some(lost) => {
                assert!(self.may_blame(&lost.path), "{}: {lost:?}", self.what);
                // Only a forger puts records of no changes between those that were written.
                let ends = &FIXTURE.ends;
                let record = ends.iter().rposition(|&end| end as u64 <= lost.offset);
                record
                    .filter(|&record| self.forged || ends[record] as u64 == lost.offset)
                    .unwrap_or_else(|| panic!("{}: {lost:?}", self.what))
            }
            None => states.len() - 1,
        };
        let lost_edit = db.recovery().lost_edit.as_ref();
        assert!(lost_edit.is_none_or(|lost| self.may_blame(&lost.path)), "{}", self.what);
        if answers.agree_with(&states[records]) {
            let outcome = match (db.recovery(), answers.failed) {
                (_, true) => Outcome::Failed,
                (report, _) if report.lost_tail.is_some() => Outcome::Dropped,
                _ if lost_edit.is_some() => Outcome::Dropped,
                _ => Outcome::Right,
            };
            return (outcome, states[records].clone());
        }
        let shorter = states.iter().find(|state| answers.agree_with(state));
        if let (Some(state), false, None) = (shorter, answers.failed, &db.recovery().lost_tail) {
            return (Outcome::Shorter, state.clone());
        }
        assert!(self.forged, "{}: wrong answers: {answers:#?}", self.what);
        (Outcome::Believed, Map::new())
    }

    /// Degraded filters are reported and counted, and belong to damaged files.
    fn check_filters(&self, db: &Db, reported: &[PathBuf]) -> bool {
        let tables = db.tables();
        let degraded =
            tables.iter().filter(|table| matches!(table.filter, FilterInfo::Degraded { .. }));
        assert_eq!(degraded.count(), reported.len(), "{}: {reported:?}", self.what);
        assert!(reported.iter().all(|path| self.may_blame(path)), "{}: {reported:?}", self.what);
        let total = db.stats().total();
        assert_eq!(total.degraded > 0, !reported.is_empty(), "{}: {total:?}", self.what);
        assert!(db.memory().filters.resident < MEMORY, "{}", self.what);
        !reported.is_empty()
    }

    /// The store is written, compacted and reopened: readable keys stay readable, merged tables are sound,
    /// and damaged ones are not merged.
    fn go_on(&self, db: Db, vfs: &SimVfs, outcome: Outcome, mut state: Map) {
        db.put("new", "value").unwrap();
        db.flush().unwrap();
        state.insert(b"new".to_vec(), b"value".to_vec());
        let merged = db.compact();
        match &merged {
            Ok(()) => {
                assert_ne!(outcome, Outcome::Failed, "{}: damage was merged", self.what);
                let filtered = |filter: &FilterInfo| matches!(filter, FilterInfo::Active { .. });
                assert!(db.tables().iter().all(|table| filtered(&table.filter)), "{}", self.what);
            }
            Err(error) => self.check_error(error),
        }
        if let Err(error) = db.close() {
            self.check_error(&error);
        }
        let vfs = SimVfs::on(vfs.disk());
        let db = options().vfs(Arc::new(vfs.clone())).open(DIR);
        let db = db.unwrap_or_else(|error| panic!("{}: not opened again: {error}", self.what));
        let answers = Answers::of(&db, self);
        // A merge counts, too, and a forger may have forged no more than the counts.
        let as_merged = answers.failed == merged.is_err() || (self.forged && merged.is_err());
        assert!(as_merged, "{}: {merged:?}, {answers:#?}", self.what);
        assert_eq!(db.get("new").unwrap().unwrap(), "value", "{}", self.what);
        let right = outcome == Outcome::Believed || answers.agree_with(&state);
        assert!(right, "{}: wrong after going on: {answers:#?}", self.what);
        db.close().unwrap();
    }
}

/// All answers of a store.
#[derive(Debug, PartialEq)]
struct Answers {
    gets: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    scan: Vec<(Vec<u8>, Vec<u8>)>,
    back: Vec<(Vec<u8>, Vec<u8>)>,
    whole: [bool; 2],
    failed: bool,
}

impl Answers {
    fn of(db: &impl Reader, case: &Case) -> Self {
        let mut failed = false;
        let mut note = |error: &Error| {
            case.check_error(error);
            failed = true;
        };
        let keys = (0..KEYS).map(key);
        let absent = ["", "key", "key 0", "key 04+", "key 17+", "zzz"];
        let mut gets = Vec::new();
        for key in keys.chain(absent.map(Vec::from)) {
            match db.get(&key) {
                Ok(value) => gets.push((key, value.map(|value| value.to_vec()))),
                Err(error) => note(&error),
            }
        }
        let mut walk = |back: bool| {
            let mut items = Vec::new();
            let mut range = db.iter();
            while let Some(item) = if back { range.next_back() } else { range.next() } {
                match item {
                    Ok((key, value)) => items.push((key.to_vec(), value.to_vec())),
                    Err(error) => {
                        note(&error);
                        return (items, false);
                    }
                }
            }
            (items, true)
        };
        let ((scan, forward), (back, backward)) = (walk(false), walk(true));
        Self { gets, scan, back, whole: [forward, backward], failed }
    }

    /// Whether all answers are right; a failed read has none.
    fn agree_with(&self, state: &Map) -> bool {
        let items = || state.iter().map(|(key, value)| (key.clone(), value.clone()));
        let part = |said: &[_], whole: bool, all: Vec<_>| {
            if whole { said == all } else { all.starts_with(said) }
        };
        self.gets.iter().all(|(key, value)| value.as_ref() == state.get(key))
            && part(&self.scan, self.whole[0], items().collect())
            && part(&self.back, self.whole[1], items().rev().collect())
    }
}

/// Runs a case, within its memory limit.
pub(crate) fn outcome_of(case: &Case) -> Outcome {
    within_memory(&case.what, || case.outcome())
}

/// Runs a part of a case, and checks the memory that it takes at once.
pub(crate) fn within_memory<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let mut result = None;
    let most = allocation_counter::measure(|| result = Some(run())).bytes_max;
    assert!(most < MEMORY, "{what}: {most} bytes of memory at once");
    result.unwrap()
}

#[test]
fn the_store_is_right_as_long_as_nothing_is_damaged() {
    let case = Case::new("untouched", "none", FIXTURE.disk.clone());
    let mut outcome = Outcome::Refused;
    let memory = allocation_counter::measure(|| outcome = case.outcome());
    assert_eq!(outcome, Outcome::Right);
    println!(
        "a sound store of {} bytes: {} bytes of memory at most",
        bytes(&FIXTURE.disk),
        memory.bytes_max
    );
    assert!(memory.bytes_max < MEMORY / 4);
    let found = case.verify().unwrap();
    assert!(found.is_sound() && found.notes.is_empty(), "{found:#?}");
    for (path, bytes) in FIXTURE.disk.files() {
        println!("{}: {} bytes", name(path), bytes.len());
    }
    assert!(Table::all().iter().all(|table| table.data.len() >= 3));
    assert!(Log::of(Kind::Manifest).frames.len() > 2);
}

fn bytes(disk: &SimDisk) -> usize {
    disk.files().map(|(_, bytes)| bytes.len()).sum()
}
