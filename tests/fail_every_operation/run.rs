//! One run of a script with one fault, and the law that it must obey.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use criba::vfs::{
    CountingVfs, FaultRule, FaultVfs, FileKind, Injected, Keep, Operation, SimDisk, SimVfs, Unit,
    Vfs,
};
use criba::{
    Batch, Compression, Db, Durability, Error, Event, Expiry, FilterInfo, Options, Snapshot,
    verify_with,
};

use crate::common::{self, ManualClock};
use crate::declared::{Reports, degradation};
use crate::script::{Changes, Contents, Script, Step, Write};

const DIR: &str = "/store";
const COPY: &str = "/copy";

/// The life of keys that expire.
const SOON: Duration = Duration::from_secs(10);

/// After this many failed calls the disk is sound again.
const PATIENCE: u64 = 4;

/// With this many tables on L0 a compaction is due.
const L0_TABLES: usize = 2;

/// The counts of one run, or of many.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: u64,
    pub(crate) operations: u64,
    pub(crate) injected: u64,
    /// Calls that returned an error, and the faults within them.
    pub(crate) failed_calls: u64,
    pub(crate) surfaced: u64,
    pub(crate) degradations: BTreeMap<&'static str, u64>,
    pub(crate) poisonings: u64,
    pub(crate) failed_openings: u64,
    pub(crate) power_failures: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, operations, injected, failed_calls, surfaced, poisonings, .. } = self;
        write!(
            f,
            "{runs} runs, {operations} operations, {injected} faults: {surfaced} surfaced in \
             {failed_calls} failed calls, {poisonings} poisonings, {} failed openings, \
             {} power failures; declared:",
            self.failed_openings, self.power_failures
        )?;
        for (degradation, count) in &self.degradations {
            write!(f, " {count} × {degradation},")?;
        }
        f.write_str(" violations 0")
    }
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.operations += other.operations;
        self.injected += other.injected;
        self.failed_calls += other.failed_calls;
        self.surfaced += other.surfaced;
        for (kind, count) in other.degradations {
            *self.degradations.entry(kind).or_default() += count;
        }
        self.poisonings += other.poisonings;
        self.failed_openings += other.failed_openings;
        self.power_failures += other.power_failures;
    }
}

/// The outcome of a call that did not succeed.
#[derive(Debug)]
enum Failure {
    Error(Error),
    /// `verify` found damage.
    #[expect(dead_code, reason = "for the message")]
    Finding(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

type Outcome = Result<(), Failure>;

pub(crate) struct Run<'a> {
    script: &'a Script,
    disk: SimVfs,
    counting: CountingVfs,
    faults: FaultVfs,
    at: String,
    /// The disk returns the same wrong bytes each time: the newest synced records look like ones that a
    /// crash cut, and are dropped and reported.
    rot: bool,
    db: Option<Db>,
    clock: Arc<ManualClock>,
    /// Pairs that will have expired after the next wait.
    soon: HashSet<(Vec<u8>, Vec<u8>)>,
    filter_memory: Option<u64>,
    snapshot: Option<(Snapshot, Contents)>,
    /// The contents after each acknowledged write, and the number of writes that must survive a power
    /// failure.
    history: Vec<Contents>,
    synced: usize,
    /// Includes the write that left the log in doubt.
    in_doubt: Option<Contents>,
    /// Whether readers see it, from the first read on. They do if its sync failed, not if its append did.
    shows_doubted: Cell<Option<bool>>,
    /// The faults before the opening.
    opened_at: usize,
    /// The syncs of logs and manifests before the store was poisoned.
    poisoned: Option<u64>,
    bad_filters: Arc<AtomicUsize>,
    tally: Tally,
}

/// Runs a script on a new disk with one fault; `None` if the script ended before it.
pub(crate) fn run(script: &Script, rule: FaultRule, rot: bool, at: String) -> Option<Tally> {
    let disk = SimVfs::new();
    let counting = CountingVfs::new(Arc::new(disk.clone()));
    let faults = FaultVfs::new(Arc::new(counting.clone()));
    faults.add(rule);
    let mut run = Run {
        script,
        disk,
        counting,
        faults,
        at,
        rot,
        db: None,
        clock: Arc::new(ManualClock::at(Duration::from_secs(1_700_000_000))),
        soon: HashSet::new(),
        filter_memory: None,
        snapshot: None,
        history: vec![Contents::new()],
        synced: 0,
        in_doubt: None,
        shows_doubted: Cell::new(None),
        opened_at: 0,
        poisoned: None,
        bad_filters: Arc::default(),
        tally: Tally { runs: 1, ..Tally::default() },
    };
    for (number, step) in script.steps.iter().enumerate() {
        run.step(number, step);
    }
    if run.faults.injected().is_empty() {
        return None;
    }
    run.ends();
    run.tally.operations = run.faults.operations();
    run.tally.injected = run.faults.injected().len() as u64;
    let declared: u64 = run.tally.degradations.values().sum();
    assert_eq!(run.tally.surfaced + declared, run.tally.injected, "{}", run.at);
    Some(run.tally)
}

impl Run<'_> {
    fn acked(&self) -> &Contents {
        &self.history[self.history.len() - 1]
    }

    fn options(&self, vfs: Arc<dyn Vfs>) -> Options {
        let options = common::options()
            .vfs(vfs)
            .background_threads(0)
            .auto_compaction(self.script.auto_compaction)
            .memtable_bytes(if self.script.auto_compaction { 1536 } else { 1 << 16 })
            .table_bytes(2048)
            .block_bytes(256)
            .level_base_bytes(4096)
            .l0_compaction_trigger(L0_TABLES)
            .max_open_files(1)
            .cache_bytes(0)
            .clock(Arc::clone(&self.clock) as _)
            .seed(1);
        let compression =
            if self.script.auto_compaction { Compression::Lz4 } else { Compression::None };
        let options = options.compression(compression);
        match self.filter_memory {
            Some(bytes) => options.filter_memory(bytes),
            None => options,
        }
    }

    /// Runs one step, and checks its result and its faults against the law.
    fn step(&mut self, number: usize, step: &Step) {
        let at = format!("{}, step {number} {step:?}", self.at);
        let mut opening = 0;
        loop {
            let first = self.faults.injected().len();
            let bad_filters = self.bad_filters.load(Ordering::Relaxed);
            let files = self.files();
            let done = self.make(step, &at);
            let injected = self.faults.injected().split_off(first);
            self.check_result(step, &done, &injected, bad_filters, &at);
            if done.is_err() {
                self.tally.failed_calls += 1;
                if self.tally.failed_calls == 1 {
                    self.survives(&at);
                }
                if self.tally.failed_calls == PATIENCE {
                    self.faults.clear();
                }
            }
            // A store that could not be opened is opened again, at last on a disk that is well.
            let (Step::Open { .. }, Err(failure)) = (step, &done) else { break };
            let none_left = self.files().is_subset(&files);
            let in_doubt = |fault: &Injected| {
                // Only what can be identified is removed.
                use Operation::{Identity, OpenDir, Remove, Rename, SyncDir};
                matches!(fault.operation, Identity | OpenDir | Remove | Rename | SyncDir)
            };
            assert!(
                none_left || injected.iter().any(in_doubt),
                "{at}: a failed opening leaves {:?}",
                self.files().difference(&files)
            );
            opening += 1;
            self.tally.failed_openings += 1;
            assert!(opening < 4, "{at}: {failure:?} on a good disk");
            if opening == 2 {
                self.faults.clear();
            }
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("the script has opened it")
    }

    fn make(&mut self, step: &Step, at: &str) -> Outcome {
        match step {
            Step::Open { filter_memory } => {
                self.filter_memory = *filter_memory;
                let bad = Arc::clone(&self.bad_filters);
                let options = self.options(Arc::new(self.faults.clone()));
                let options = options.on_event(move |event| {
                    if matches!(event, Event::FilterDegraded { .. }) {
                        bad.fetch_add(1, Ordering::Relaxed);
                    }
                });
                self.opened_at = self.faults.injected().len();
                self.db = Some(options.open(DIR)?);
                // Through another file layer: not everything can be read yet, perhaps.
                self.recovered(contents_of(&self.disk.disk(), self, at), at);
            }
            Step::Write(write) => return self.write(write),
            Step::Insert(insert) => return self.insert(insert),
            Step::Ingest(changes) => return self.ingest(changes),
            Step::Wait => {
                self.clock.advance(SOON);
                let soon = std::mem::take(&mut self.soon);
                for state in self.history.iter_mut().chain(&mut self.in_doubt) {
                    state.retain(|key, value| !soon.contains(&(key.clone(), value.clone())));
                }
            }
            Step::Sync => {
                self.db().sync()?;
                self.synced = self.history.len() - 1;
            }
            Step::Flush => {
                self.db().flush()?;
                self.synced = self.history.len() - 1;
            }
            Step::Compact => {
                self.db().compact()?;
                self.synced = self.history.len() - 1;
            }
            Step::Settle => {
                self.db().wait_until_settled()?;
                self.synced = self.history.len() - 1;
            }
            Step::RebuildFilters(policy) => {
                self.db().rebuild_filters(&common::named(policy))?;
            }
            Step::SetFilterMemory(budget) => self.db().set_filter_memory(*budget)?,
            Step::TakeSnapshot => {
                self.snapshot = Some((self.db().snapshot(), self.acked().clone()));
            }
            Step::ScanSnapshot => {
                let (snapshot, expected) = self.snapshot.take().expect("taken before");
                let found = collect(snapshot.iter())?;
                assert!(found == expected, "{at}: the snapshot changed");
            }
            Step::Scan => {
                let found = contents(self.db())?;
                assert!(
                    self.is_visible(|state| *state == found),
                    "{at}: the scan is not what was written"
                );
            }
            Step::ScanBackwards => {
                let found = collect(self.db().iter().rev())?;
                assert!(
                    self.is_visible(|state| *state == found),
                    "{at}: the scan is not what was written"
                );
            }
            Step::Gets => return self.gets(at),
            Step::Verify => {
                let vfs: Arc<dyn Vfs> = Arc::new(self.faults.clone());
                let found = verify_with(DIR, &vfs, |_, _| {})?;
                // What looks like the work of a crash is only counted.
                let noted = found.notes.iter().filter(|_| self.rot);
                if let Some(finding) = found.findings.iter().chain(noted).next() {
                    return Err(Failure::Finding(finding.to_string()));
                }
            }
            Step::Checkpoint => {
                let done = self.db().checkpoint(COPY);
                self.check_copy(&done, at);
                done?;
            }
            Step::Close => {
                self.snapshot = None;
                let Some(db) = self.db.take() else { return Ok(()) };
                db.close()?;
                self.synced = self.history.len() - 1;
            }
        }
        Ok(())
    }

    fn insert(&mut self, Write { changes, synced }: &Write) -> Outcome {
        let mut state = self.acked().clone();
        let (mut pairs, mut absent) = (Vec::new(), Vec::new());
        for (key, value) in changes.iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
            pairs.push((key, value));
            absent.push(!state.contains_key(key));
            state.entry(key.clone()).or_insert_with(|| value.clone());
        }
        let durability = if *synced { Durability::Synced } else { Durability::Buffered };
        let inserted = self.db().insert_many_if_absent_with(pairs, durability);
        let inserted = inserted.map(|inserted| assert_eq!(inserted, absent, "{}", self.at));
        self.written(inserted, state, *synced)
    }

    fn ingest(&mut self, changes: &Changes) -> Outcome {
        let present = changes.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
        let pairs: Contents = present.collect();
        let mut state = self.acked().clone();
        state.extend(pairs.clone());
        let ingested = self.db().ingest(pairs.iter().map(Ok::<_, Error>));
        self.written(ingested.map(|count| assert_eq!(count, pairs.len() as u64)), state, true)
    }

    fn write(&mut self, Write { changes, synced }: &Write) -> Outcome {
        let (mut batch, mut state) = (Batch::new(), self.acked().clone());
        for (key, value) in changes {
            match value {
                Some(value) if value.len() % 4 == 0 => {
                    let expiry = SystemTime::UNIX_EPOCH + self.clock.now() + SOON;
                    batch.put_expiring(key, value, Expiry::At(expiry));
                    self.soon.insert((key.clone(), value.clone()));
                    state.insert(key.clone(), value.clone());
                }
                Some(value) => {
                    batch.put(key, value);
                    state.insert(key.clone(), value.clone());
                }
                None => {
                    batch.delete(key);
                    state.remove(key);
                }
            }
        }
        let durability = if *synced { Durability::Synced } else { Durability::Buffered };
        let written = self.db().write_with(batch, durability);
        self.written(written, state, *synced)
    }

    /// Notes the result of a write after which the contents are `state`.
    fn written(&mut self, written: criba::Result<()>, state: Contents, synced: bool) -> Outcome {
        match written {
            Ok(()) => {
                self.history.push(state);
                if synced {
                    self.synced = self.history.len() - 1;
                }
                Ok(())
            }
            Err(error) => {
                // Any other error says that the write is not in the log, and never will be.
                if matches!(error, Error::Poisoned { .. }) && self.poisoned.is_none() {
                    self.in_doubt = Some(state);
                }
                Err(error.into())
            }
        }
    }

    /// A checkpoint holds all that was acknowledged, also after a power failure; after an error nothing is
    /// left of it, if it could be removed, or all.
    fn check_copy(&self, done: &criba::Result<()>, at: &str) {
        let disk = self.disk.disk();
        let lost = disk.power_failure(Unit::Sector, |_| Keep::OLD);
        for disk in [disk, lost] {
            let vfs = SimVfs::on(disk.clone());
            let is_there = vfs.open_dir(COPY.as_ref()).is_ok();
            assert!(is_there || done.is_err(), "{at}: no checkpoint");
            if is_there {
                let found = contents_in(COPY, &disk, self, at);
                assert!(found == *self.acked(), "{at}: {}", self.describe(&found));
            }
        }
        let removable = |fault: &Injected| {
            use Operation::{Identity, List, OpenDir, Remove, SyncDir};
            !matches!(fault.operation, Identity | List | OpenDir | Remove | SyncDir)
        };
        if done.is_err() && self.faults.injected().iter().all(removable) {
            let names = self.disk.open_dir("/".as_ref()).unwrap().list().unwrap();
            let of_copy = |name: &OsString| name.to_str().unwrap().contains("copy");
            assert!(!names.iter().any(of_copy), "{at}: {names:?}");
        }
    }

    /// Whether readers may see this: what was acknowledged, or that with the write that is in doubt, but always the
    /// same of both.
    fn is_visible(&self, is_in: impl Fn(&Contents) -> bool) -> bool {
        let acked = is_in(self.acked());
        let Some(doubted) = self.in_doubt.as_ref().map(is_in).filter(|doubted| *doubted != acked)
        else {
            return acked;
        };
        let shown = self.shows_doubted.get().unwrap_or(doubted);
        self.shows_doubted.set(Some(shown));
        shown == doubted
    }

    /// Looks up every key: each answer is right, or an error.
    fn gets(&self, at: &str) -> Outcome {
        let mut failed = Ok(());
        let keys: BTreeSet<&Vec<u8>> = self.history.iter().flat_map(Contents::keys).collect();
        for key in keys {
            match self.db().get(key) {
                Ok(value) => {
                    let is_in =
                        |state: &Contents| value.as_deref() == state.get(key).map(Vec::as_slice);
                    assert!(self.is_visible(is_in), "{at}: {key:?}");
                }
                Err(error) => failed = Err(error.into()),
            }
        }
        failed
    }

    /// Checks the contents after an opening.
    fn recovered(&mut self, found: Contents, at: &str) {
        let rotten = self.rot && self.lost();
        if let Some(number) = self.history.iter().rposition(|state| rotten && *state == found) {
            self.history.truncate(number + 1);
        } else if found != *self.acked() {
            let doubted = self.in_doubt.as_ref();
            assert!(doubted == Some(&found), "{at}: recovered {}", self.describe(&found));
            self.history.push(found);
        }
        (self.in_doubt, self.poisoned) = (None, None);
        self.shows_doubted.set(None);
        // What was recovered is in tables, synced.
        self.synced = self.history.len() - 1;
    }

    /// Whether the opening reported a log with an incomplete end.
    fn lost(&self) -> bool {
        let recovery = self.db.as_ref().map(Db::recovery);
        recovery.is_some_and(|found| found.lost_tail.is_some() || found.lost_edit.is_some())
    }

    /// The number of writes in this state.
    fn describe(&self, found: &Contents) -> String {
        let of = self.history.len() - 1;
        match self.history.iter().rposition(|state| state == found) {
            Some(number) => format!("{number} of {of} writes, {} synced", self.synced),
            None => format!("what was never there: {} keys", found.len()),
        }
    }

    /// The files to which a failed opening adds none.
    fn files(&self) -> BTreeSet<PathBuf> {
        let disk = self.disk.disk();
        let paths = disk.files().map(|(path, _)| path.to_owned());
        paths.filter(|path| !path.ends_with("LOCK") && !path.ends_with("CURRENT.tmp")).collect()
    }

    fn log_syncs(&self) -> u64 {
        let counts = self.counting.counts();
        [FileKind::Wal, FileKind::Manifest]
            .map(|kind| counts.of(kind, Operation::Sync).calls)
            .iter()
            .sum()
    }

    /// Checks a call against the law: a fault surfaces or is declared; a failed sync is not tried again,
    /// and one of a log in use poisons.
    fn check_result(
        &mut self,
        step: &Step,
        done: &Outcome,
        injected: &[Injected],
        bad_filters: usize,
        at: &str,
    ) {
        let poisoned = matches!(done, Err(Failure::Error(Error::Poisoned { .. })));
        let since_opening = self.faults.injected().split_off(self.opened_at);
        match done {
            Err(failure) => {
                self.tally.surfaced += injected.len() as u64;
                // A compaction at opening has no call to fail; if it poisons, the next write says so.
                // An ingest does not go below a table in which an earlier call met damage.
                let in_the_way = matches!(step, Step::Ingest(_))
                    && matches!(failure, Failure::Error(Error::Corrupt { .. }))
                    && self.reports(bad_filters).damaged_tables > 0;
                let known =
                    !injected.is_empty() || poisoned && !since_opening.is_empty() || in_the_way;
                assert!(known, "{at}: {failure:?} without a fault");
            }
            Ok(()) => {
                let poisoned = self.poisoned.is_some() && writes(step);
                assert!(!poisoned, "{at}: a write succeeded in spite of the poisoning");
                let reports = self.reports(bad_filters);
                for fault in injected {
                    let file_stays = self.disk.disk().read(&fault.path).is_some();
                    let Some(declared) = degradation(step, fault, file_stays, &reports) else {
                        panic!("{at}: no error or event for {fault:?}; {reports:?}")
                    };
                    *self.tally.degradations.entry(declared).or_default() += 1;
                }
            }
        }
        let mut failed_syncs = BTreeSet::new();
        for fault in since_opening.iter().filter(|fault| fault.operation == Operation::Sync) {
            let unique = !matches!(fault.kind, FileKind::Current | FileKind::Filter);
            let again = !failed_syncs.insert(&fault.path) && unique;
            assert!(!again, "{at}: {} was synced again", fault.path.display());
        }
        if self.db.is_some() {
            // One that was only being made is gone.
            let in_use = |fault: &&Injected| {
                fault.operation == Operation::Sync
                    && matches!(fault.kind, FileKind::Wal | FileKind::Manifest)
                    && self.disk.disk().read(&fault.path).is_some()
            };
            let failed = injected.iter().find(in_use);
            let removable = !injected
                .iter()
                .any(|fault| matches!(fault.operation, Operation::Identity | Operation::Remove));
            if let Some(fault) = failed.filter(|_| removable && !matches!(step, Step::Open { .. }))
            {
                assert!(poisoned, "{at}: {} was not synced: {done:?}", fault.path.display());
            }
        }
        if let Some(syncs) = self.poisoned {
            assert_eq!(self.log_syncs(), syncs, "{at}: a sync after the poisoning");
        } else if poisoned {
            let doubtful = |fault: &Injected| {
                use Operation::{Identity, Rename, SetLength, Sync, SyncDir};
                // Of a synced log, or its directory, that may have lost its name.
                let is_linked = fault.operation != Identity || fault.kind != FileKind::Lock;
                is_linked
                    && matches!(fault.operation, Identity | Rename | SetLength | Sync | SyncDir)
            };
            let cause = since_opening.iter().any(doubtful);
            assert!(cause, "{at}: poisoned by {injected:?}");
            self.poisoned = Some(self.log_syncs());
            self.tally.poisonings += 1;
        }
        if matches!(step, Step::Close) {
            self.poisoned = None;
        }
    }

    fn reports(&self, bad_filters: usize) -> Reports {
        let Some(db) = &self.db else { return Reports::default() };
        let l0 = db.tables().iter().filter(|table| table.level == 0).count();
        // The store is so small that all levels between have target 0.
        let between = 1..criba::LEVELS - 1;
        let is_expired = db.tables().iter().any(|table| table.expired >= 0.25);
        let is_between = db.tables().iter().any(|table| between.contains(&table.level));
        let damaged = db
            .tables()
            .into_iter()
            .any(|table| matches!(table.filter, FilterInfo::Active { damaged: Some(_), .. }));
        Reports {
            bad_filter: damaged || self.bad_filters.load(Ordering::Relaxed) > bad_filters,
            compaction_is_due: self.script.auto_compaction
                && (l0 >= L0_TABLES || is_between || is_expired),
            lost_to_rot: self.rot && self.lost(),
            damaged_tables: db.tables().iter().filter(|table| table.damage.is_some()).count(),
        }
    }

    /// After a killed process, and after a power failure, all writes that must survive are there.
    fn survives(&mut self, at: &str) {
        let found = contents_of(&self.disk.disk(), self, at);
        let right = found == *self.acked() || self.in_doubt.as_ref() == Some(&found);
        assert!(right, "{at}, killed: {}", self.describe(&found));
        let lost = self.disk.disk().power_failure(Unit::Sector, |_| Keep::OLD);
        let found = contents_of(&lost, self, at);
        let mut may_be = self.history[self.synced..].iter().chain(&self.in_doubt);
        assert!(
            may_be.any(|state| *state == found),
            "{at}, after a power failure: {}",
            self.describe(&found)
        );
        self.tally.power_failures += 1;
    }

    /// The disk is sound again: all writes are there, and writing continues unless the store is poisoned;
    /// so after a reopening.
    fn ends(&mut self) {
        let at = format!("{}, at the end", self.at);
        self.faults.clear();
        self.survives(&at);
        let must = |done: Outcome| done.unwrap_or_else(|failure| panic!("{at}: {failure:?}"));
        for step in [Step::Scan, Step::Gets] {
            must(self.make(&step, &at));
        }
        let change = (b"at the end".to_vec(), Some(b"there is room".to_vec()));
        let write = Step::Write(Write { changes: vec![change], synced: true });
        let writing = [write, Step::Flush, Step::Compact, Step::Scan, Step::Sync];
        for step in &writing {
            let done = self.make(step, &at);
            if self.poisoned.is_some() && writes(step) {
                let error = done.expect_err("poisoned");
                assert!(matches!(error, Failure::Error(Error::Poisoned { .. })), "{at}: {error:?}");
            } else {
                must(done);
            }
        }
        let closed = self.make(&Step::Close, &at);
        assert_eq!(closed.is_err(), self.poisoned.is_some(), "{at}: {closed:?}");
        if let Some(syncs) = self.poisoned {
            assert_eq!(self.log_syncs(), syncs, "{at}: a sync after the poisoning");
        }
        must(self.make(&Step::Open { filter_memory: None }, &at));
        for step in [&writing[0], &Step::Scan] {
            must(self.make(step, &at));
        }
        must(self.make(&Step::Close, &at));
        must(self.make(&Step::Verify, &at));
        let vfs: Arc<dyn Vfs> = Arc::new(self.disk.clone());
        let found = verify_with(DIR, &vfs, |_, _| {}).expect("it was closed");
        assert!(found.notes.is_empty(), "{at}: {:?}", found.notes);
    }
}

fn writes(step: &Step) -> bool {
    use Step::{Checkpoint, Close, Compact, Flush, Ingest, RebuildFilters, Settle, Sync, Write};
    matches!(step, Write(_) | Ingest(_) | Sync | Flush | Compact | Settle)
        || matches!(step, RebuildFilters(_) | Checkpoint | Close)
}

fn collect(
    items: impl Iterator<Item = criba::Result<(criba::Value, criba::Value)>>,
) -> criba::Result<Contents> {
    items.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

fn contents(db: &Db) -> criba::Result<Contents> {
    collect(db.iter())
}

/// The contents of a store on such a disk after an opening.
fn contents_of(disk: &SimDisk, run: &Run<'_>, at: &str) -> Contents {
    if disk.read(Path::new(DIR).join("CURRENT")).is_none() {
        assert_eq!(run.synced, 0, "{at}: no store");
    }
    contents_in(DIR, disk, run, at)
}

fn contents_in(dir: &str, disk: &SimDisk, run: &Run<'_>, at: &str) -> Contents {
    let options = run.options(Arc::new(SimVfs::on(disk.clone())));
    let db = options.open(dir).unwrap_or_else(|error| panic!("{at}: not opened again: {error}"));
    contents(&db).unwrap_or_else(|error| panic!("{at}: not read again: {error}"))
}
