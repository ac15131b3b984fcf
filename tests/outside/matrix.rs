//! One event at each moment of a script, in a process of its own: the process changes its directory, and
//! counts what went wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use criba::Db;
use criba::vfs::{FileKind, Operation};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{self, HookVfs};
use crate::event::{Event, Templates, World};
use crate::other::Other;
use crate::script::{self, Contents, Expected, Failure, Script, Step, apply, base, make, options};
use crate::tree::{Tree, difference, tree};

/// `OUTSIDE_EVERY=1 cargo test --test outside` tries every moment, not each ninth.
const EVERY: &str = "OUTSIDE_EVERY";
const CHILD: &str = "CRIBA_TEST_OUTSIDE_EVENT";
const SEED: u64 = 13;
/// Runs with background threads, at random moments.
const THREADED: u64 = 20;
/// So many moments are tried at least.
const FLOOR: u64 = 150;

/// Runs the matrix of an event, in a new process.
pub(crate) fn holds(event: Event) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "matrix::all_moments_of_an_event", "--ignored", "--nocapture"])
        .env(CHILD, format!("{event:?}"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let counted = said.lines().filter_map(|line| line.strip_prefix("= "));
    let counted: Vec<&str> = counted.collect();
    println!("{}", counted.join("\n"));
    let moments = counted.iter().find_map(|line| line.strip_prefix("moments "));
    let moments: u64 = moments.map_or(0, |moments| moments.parse().unwrap());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(moments >= FLOOR, "{event:?}: only {moments} moments: {said}{errors}");
    assert!(output.status.success(), "{}", counted.join("\n"));
}

/// Not a test: the process of one event.
#[test]
#[ignore = "run by the tests of the events"]
fn all_moments_of_an_event() {
    let event = std::env::var(CHILD).expect("run by the tests of the events");
    let event = Event::named(&event).expect("an event");
    let usual = if common::is_full() { 9 } else { 15 };
    let every = std::env::var(EVERY).map_or(usual, |every| every.parse().expect("a number"));
    let parent = common::tempdir();
    let templates = templates(parent.path());
    let other = Arc::new(Mutex::new(Other::start()));
    let panics: Arc<Mutex<Vec<String>>> = Arc::default();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new({
        let panics = Arc::clone(&panics);
        move |panic| locked(&panics).push(panic.to_string().replace('\n', " "))
    }));

    let mut tally = Tally::default();
    let one = |script: &Script, moment: Option<(u64, bool)>, tally: &mut Tally| {
        let world = World::new(&parent.path().join("run"), &templates);
        std::env::set_current_dir(world.root.join("A")).unwrap();
        let injection = Arc::new(Injection::new(event, world, moment, Arc::clone(&other)));
        let operations = run(&injection, script, &panics, tally);
        std::env::set_current_dir(parent.path()).unwrap();
        std::fs::remove_dir_all(&injection.world.root).unwrap();
        operations
    };
    let script = Script::everything();
    let operations = one(&script, None, &mut tally);
    for moment in (0..2 * operations).step_by(every) {
        one(&script, Some((moment / 2, moment % 2 == 1)), &mut tally);
    }
    let single = tally.moments;

    let script = Script::with_threads();
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let operations = one(&script, None, &mut tally);
    for _ in 0..THREADED {
        let moment = (rng.random_range(0..operations), rng.random_bool(0.5));
        one(&script, Some(moment), &mut tally);
    }
    std::panic::set_hook(usual);
    let threaded = tally.moments - single;
    // The harness began a line.
    println!("\n= moments {single}");
    println!("= {event:?}: {single} moments, {threaded} more with threads, seed {SEED}; {tally}");
    assert!(tally.violations.is_empty(), "{tally}");
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn templates(parent: &Path) -> Templates {
    let at = |name: &str| parent.join(name);
    let made = Templates { base: at("base"), checkpoint: at("checkpoint"), foreign: at("foreign") };
    for dir in [&made.base, &made.foreign] {
        script::make_base(dir);
    }
    let db = options(0).open(&made.base).unwrap();
    db.checkpoint(&made.checkpoint).unwrap();
    db.close().unwrap();
    made
}

/// What the runs of an event counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    moments: u64,
    /// Calls after the event that returned an error, and runs with at least one.
    errors: u64,
    runs_with_errors: u64,
    /// Buffered writes that were acknowledged after their directory or log was removed.
    excepted: u64,
    /// What the second process was answered.
    answers: BTreeMap<String, u64>,
    /// The synced puts of the second process.
    others: u64,
    violations: BTreeMap<&'static str, Violation>,
}

/// The runs in which something went wrong, and the first of them.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    runs: u64,
    first: String,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { errors, runs_with_errors, excepted, others, .. } = self;
        write!(
            f,
            "{errors} errors in {runs_with_errors} runs, {excepted} buffered puts excepted; "
        )?;
        write!(f, "second process: {others} puts")?;
        for (answer, count) in &self.answers {
            write!(f, ", {count} × {answer}")?;
        }
        f.write_str("; violations: ")?;
        if self.violations.is_empty() {
            f.write_str("none")?;
        }
        for (what, Violation { runs, first }) in &self.violations {
            write!(f, "\n= {runs} runs: {what}, first {first}")?;
        }
        Ok(())
    }
}

/// The moment of the event, and what happened at it. The hooks of the file layer share it.
#[derive(Debug)]
struct Injection {
    event: Event,
    world: World,
    /// The number of an operation, and whether the event happens after it.
    moment: Option<(u64, bool)>,
    operations: AtomicU64,
    begun: AtomicBool,
    done: AtomicBool,
    /// Since the event: a sync of a log ended in this call; a new log was made.
    synced: AtomicBool,
    has_new_log: AtomicBool,
    /// The logs of a checkpoint are no logs of the store.
    in_checkpoint: AtomicBool,
    /// The thread of the calls.
    writer: ThreadId,
    at: Mutex<String>,
    other: Arc<Mutex<Other>>,
    answer: Mutex<Option<String>>,
    outside: Mutex<Tree>,
}

impl Injection {
    fn new(
        event: Event,
        world: World,
        moment: Option<(u64, bool)>,
        other: Arc<Mutex<Other>>,
    ) -> Self {
        Self {
            event,
            world,
            moment,
            operations: AtomicU64::new(0),
            begun: AtomicBool::new(false),
            done: AtomicBool::new(false),
            synced: AtomicBool::new(false),
            has_new_log: AtomicBool::new(false),
            in_checkpoint: AtomicBool::new(false),
            writer: std::thread::current().id(),
            at: Mutex::default(),
            other,
            answer: Mutex::default(),
            outside: Mutex::default(),
        }
    }

    fn before(&self, kind: FileKind, operation: Operation) {
        let number = self.operations.fetch_add(1, SeqCst);
        if self.moment == Some((number, false)) {
            self.inject(&format!("before {operation:?} of {kind:?}, {number}"));
        }
    }

    fn after(&self, kind: FileKind, operation: Operation) {
        // A log that is made while another thread removes the newest one may be a newer one.
        let was_begun = self.begun.load(SeqCst);
        let number = self.operations.load(SeqCst) - 1;
        if self.moment == Some((number, true)) {
            self.inject(&format!("after {operation:?} of {kind:?}, {number}"));
        }
        // A thread beside it may sync an earlier log, after the writer has looked at its own.
        let is_sync = (kind, operation) == (FileKind::Wal, Operation::Sync)
            && std::thread::current().id() == self.writer;
        if is_sync && self.done.load(SeqCst) {
            self.synced.store(true, SeqCst);
        }
        let is_new_log = (kind, operation) == (FileKind::Wal, Operation::Create)
            && !self.in_checkpoint.load(SeqCst);
        if was_begun && is_new_log {
            self.has_new_log.store(true, SeqCst);
        }
    }

    fn inject(&self, at: &str) {
        if self.begun.swap(true, SeqCst) {
            return;
        }
        at.clone_into(&mut locked(&self.at));
        let answer = self.event.happens(&self.world, &mut locked(&self.other));
        locked(&self.other).put();
        *locked(&self.answer) = answer;
        *locked(&self.outside) = tree(&self.world.root, &self.written());
        self.done.store(true, SeqCst);
    }

    /// The directories that may change after the event.
    fn written(&self) -> Vec<PathBuf> {
        let World { root, .. } = &self.world;
        let stores =
            self.event.home(&self.world).into_iter().chain(self.event.newcomer(&self.world));
        stores.chain([root.join("out")]).collect()
    }
}

/// When a call was made: before the event, while it happened, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    Meanwhile,
    After,
}

/// One call, and its result.
#[derive(Debug)]
struct Call {
    step: Step,
    when: When,
    /// A log was synced in the call after the event.
    synced: bool,
    has_new_log: bool,
    error: Option<String>,
}

impl Call {
    /// Whether a call after the event succeeded.
    fn succeeded_late(&self) -> bool {
        self.when == When::After && self.error.is_none()
    }

    /// Whether it says that writes are durable that were synced after the event.
    fn promises(&self) -> bool {
        let late = self.when == When::After || self.when == When::Meanwhile && self.synced;
        late && self.step.promises() && self.error.is_none()
    }
}

/// Runs the script, and judges it. Returns the number of operations.
fn run(
    injection: &Arc<Injection>,
    script: &Script,
    panics: &Mutex<Vec<String>>,
    tally: &mut Tally,
) -> u64 {
    let mut history = History { acked: base(), ..History::default() };
    let mut db = None;
    let vfs = HookVfs::around(
        {
            let injection = Arc::clone(injection);
            move |kind, operation| {
                injection.before(kind, operation);
                Ok(())
            }
        },
        {
            let injection = Arc::clone(injection);
            move |kind, operation| injection.after(kind, operation)
        },
    );
    // Only the change of the directory needs a relative path.
    let path = match injection.event {
        Event::Chdir => PathBuf::from("store"),
        _ => injection.world.store(),
    };
    let mut open = || options(script.threads).vfs(Arc::clone(&vfs)).open(&path);
    for (number, &step) in script.steps.iter().enumerate() {
        if !history.call(injection, step, &mut db, &mut open) {
            break;
        }
        if injection.done.load(SeqCst) && number % 3 == 0 {
            locked(&injection.other).put();
        }
    }
    let _ = catch_unwind(AssertUnwindSafe(|| drop(db)));
    let operations = injection.operations.load(SeqCst);
    locked(&injection.other).close();

    let mut violations = Violations::default();
    for panic in locked(panics).drain(..) {
        violations.add("panic", panic);
    }
    let judged = catch_unwind(AssertUnwindSafe(|| judge(injection, &history, &mut violations)));
    if judged.is_err() {
        violations.add("panic while the stores are judged", locked(panics).drain(..).collect());
    }
    tally.add(injection, &history, violations);
    operations
}

#[derive(Debug, Default)]
struct Violations(BTreeMap<&'static str, String>);

impl Violations {
    /// Keeps the first of a kind.
    fn add(&mut self, what: &'static str, detail: String) {
        self.0.entry(what).or_insert(detail);
    }
}

/// The calls of a run.
#[derive(Debug, Default)]
struct History {
    calls: Vec<Call>,
    /// What the store must answer.
    acked: Contents,
    /// The contents of the checkpoint, if one was made.
    copied: Option<BTreeSet<u64>>,
    wrong: Option<String>,
}

impl History {
    /// Makes one call. Returns false after a panic, which may leave locks behind.
    fn call(
        &mut self,
        injection: &Injection,
        step: Step,
        db: &mut Option<Db>,
        open: &mut dyn FnMut() -> criba::Result<Db>,
    ) -> bool {
        let happened_before = injection.done.load(SeqCst);
        injection.synced.store(false, SeqCst);
        injection.in_checkpoint.store(step == Step::Checkpoint, SeqCst);
        let copy = injection.world.copy();
        let made = catch_unwind(AssertUnwindSafe(|| make(step, db, open, &copy, &self.acked)));
        let error = match &made {
            Ok(Ok(())) => None,
            Ok(Err(Failure::Error(error))) => Some(format!("{step:?}: {error}")),
            Ok(Err(Failure::WrongAnswer(wrong))) => Some(format!("{step:?}: {wrong}")),
            Err(_) => Some(format!("{step:?}: panic")),
        };
        if let Ok(Err(Failure::WrongAnswer(wrong))) = &made
            && self.writes(|call| call.error.is_some()).is_empty()
        {
            self.wrong.get_or_insert_with(|| wrong.clone());
        }
        if error.is_none() {
            match step {
                Step::Write { number, .. } => apply(&mut self.acked, number),
                Step::Checkpoint => self.copied = Some(self.writes(|call| call.error.is_none())),
                _ => {}
            }
        }
        let when = match (happened_before, injection.done.load(SeqCst)) {
            (true, _) => When::After,
            (false, true) => When::Meanwhile,
            (false, false) => When::Before,
        };
        self.calls.push(Call {
            step,
            when,
            synced: injection.synced.load(SeqCst),
            has_new_log: injection.has_new_log.load(SeqCst),
            error,
        });
        made.is_ok()
    }

    /// The numbers of some of the writes.
    fn writes(&self, which: impl Fn(&Call) -> bool) -> BTreeSet<u64> {
        let number = |call: &Call| match call.step {
            Step::Write { number, .. } => Some(number),
            _ => None,
        };
        self.calls.iter().filter(|call| which(call)).filter_map(number).collect()
    }

    fn expected(&self) -> Expected {
        Expected {
            must: self.writes(|call| call.error.is_none()),
            may: self.writes(|_| true),
            failed: self.writes(|call| call.error.is_some()),
            other: 0,
        }
    }

    fn late_errors(&self) -> impl Iterator<Item = &String> {
        let late = self.calls.iter().filter(|call| call.when != When::Before);
        late.filter_map(|call| call.error.as_ref())
    }
}

/// The law: each store is whole with all that was acknowledged, or the call returned an error; and nothing
/// else changed.
fn judge(injection: &Injection, history: &History, violations: &mut Violations) {
    let Injection { event, world, .. } = injection;
    let happened = injection.done.load(SeqCst);
    let other = locked(&injection.other);
    let opening = history.calls[0].when == When::Meanwhile;

    if let Some(wrong) = &history.wrong {
        violations.add("a wrong answer", wrong.clone());
    }
    let errors = || history.calls.iter().filter_map(|call| call.error.as_ref());
    // A path that leads nowhere cannot be opened.
    let may_fail = happened && (!event.is_harmless() || opening && *event != Event::Chdir);
    if let Some(error) = errors().next().filter(|_| !may_fail) {
        violations.add("an error of the writer", error.clone());
    }
    if happened {
        let now = tree(&world.root, &injection.written());
        let changed = difference(&locked(&injection.outside), &now, &world.root);
        if let Some(changed) = changed.filter(|_| !opened_the_new_one(injection, history)) {
            violations.add("a change outside the store", changed);
        }
    }
    if let Some(numbers) = &history.copied {
        let expected = Expected { must: numbers.clone(), ..Expected::default() };
        if let Err(wrong) = whole(&world.copy(), &base(), &expected) {
            violations.add("a checkpoint that is not whole", wrong);
        }
    }
    if !happened {
        if let Err(wrong) = whole(&world.store(), &base(), &history.expected()) {
            violations.add("without the event, a store that is not whole", wrong);
        }
        return;
    }

    if let Some(newcomer) = event.newcomer(world) {
        let answer = locked(&injection.answer).clone();
        if let Some(error) = answer.filter(|answer| answer != "opened").or(other.error.clone()) {
            violations.add("an error of the second process", error);
        }
        let contents = if *event == Event::RemoveAndMake { Contents::new() } else { base() };
        let expected = Expected { other: other.acknowledged, ..Expected::default() };
        if let Err(wrong) = whole(&newcomer, &contents, &expected) {
            violations.add("the new store is not whole", wrong);
        }
    }
    if event.removes() {
        judge_removal(injection, history, violations);
    } else if event.is_about_the_log() {
        judge_log(world, history, violations);
    } else {
        let home = event.home(world).expect("it is not removed");
        let mut expected = history.expected();
        if event.is_about_the_lock() {
            expected.other = other.acknowledged;
            judge_lock(injection, history, violations);
        }
        if let Err(wrong) = whole(&home, &base(), &expected) {
            violations.add("the writer's store is not whole", wrong);
        }
    }
}

/// An opening that was under way may have found the directory that was put in the place of the other.
fn opened_the_new_one(injection: &Injection, history: &History) -> bool {
    let first = &history.calls[0];
    injection.event == Event::RemoveAndReplace
        && first.when == When::Meanwhile
        && first.error.is_none()
        && whole(&injection.world.store(), &base(), &history.expected()).is_ok()
}

fn judge_removal(injection: &Injection, history: &History, violations: &mut Violations) {
    if opened_the_new_one(injection, history) {
        return;
    }
    if let Some(call) = history.calls.iter().find(|call| call.promises()) {
        violations.add("a synced write acknowledged after the removal", format!("{:?}", call.step));
    }
    let made = |call: &&Call| call.step.creates() && call.succeeded_late();
    if let Some(call) = history.calls.iter().find(made) {
        violations.add("files made after the removal", format!("{:?}", call.step));
    }
}

fn judge_log(world: &World, history: &History, violations: &mut Violations) {
    let promises = |call: &&Call| call.promises();
    let mut calls = history.calls.iter().filter(promises);
    if let Some(call) = calls.clone().find(|call| !call.has_new_log) {
        violations.add("a write synced into a log without a name", format!("{:?}", call.step));
    }
    let expected = Expected {
        must: history.writes(Call::promises),
        may: history.writes(|_| true),
        failed: history.writes(|_| true), // Those in the log went with it.
        other: 0,
    };
    if let (Some(call), Err(wrong)) = (calls.next(), whole(&world.store(), &base(), &expected)) {
        let lost = format!("{:?}: {wrong}", call.step);
        violations.add("a synced write acknowledged after the removal, and lost", lost);
    }
}

fn judge_lock(injection: &Injection, history: &History, violations: &mut Violations) {
    let answer = locked(&injection.answer).clone().unwrap_or_default();
    if answer != "locked" && answer != "opened" {
        violations.add("the second opening fails otherwise", answer);
    }
    let made = |call: &&Call| call.step.creates() && call.succeeded_late();
    let opening = history.calls[0].when == When::Meanwhile;
    if let Some(call) = history.calls.iter().find(made).filter(|_| !opening) {
        violations.add("files made without LOCK", format!("{:?}", call.step));
    }
}

/// Says what is wrong with a store: by `verify`, by its opening, by its contents.
fn whole(dir: &Path, base: &Contents, expected: &Expected) -> Result<(), String> {
    let sound = || match criba::verify(dir) {
        Err(error) => Err(format!("not verified: {error}")),
        Ok(found) if found.is_sound() => Ok(()),
        Ok(found) => Err(format!("not sound: {}", found.findings[0])),
    };
    // The opening makes it.
    if dir.join("LOCK").exists() {
        sound()?;
    }
    let db = options(0).open(dir).map_err(|error| format!("not opened: {error}"))?;
    let found = script::contents(&db).map_err(|error| format!("not read: {error}"))?;
    script::check(&found, base, expected)?;
    db.close().map_err(|error| format!("not closed: {error}"))?;
    sound()
}

impl Tally {
    fn add(&mut self, injection: &Injection, history: &History, violations: Violations) {
        let happened = injection.done.load(SeqCst);
        if happened {
            self.moments += 1;
            let errors = history.late_errors().count() as u64;
            self.errors += errors;
            self.runs_with_errors += u64::from(errors > 0);
            if let Some(answer) = &*locked(&injection.answer) {
                let answer = answer.split(' ').next().unwrap_or_default();
                *self.answers.entry(answer.to_owned()).or_default() += 1;
                self.others += locked(&injection.other).acknowledged;
            }
            let event = injection.event;
            if event.removes() || event.is_about_the_log() {
                let is_buffered =
                    |call: &Call| matches!(call.step, Step::Write { synced: false, .. });
                let excepted = |call: &&Call| call.succeeded_late() && is_buffered(call);
                self.excepted += history.calls.iter().filter(excepted).count() as u64;
            }
        }
        for (what, detail) in violations.0 {
            let first = format!("{}: {detail}", locked(&injection.at));
            let violation = self.violations.entry(what);
            violation.or_insert(Violation { runs: 0, first }).runs += 1;
        }
    }
}
