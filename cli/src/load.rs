mod rejects;
mod sorted;

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use criba::{Batch, Db, Expiry};
use serde_json::{Value, json};

use self::rejects::Rejects;
use crate::compression::SettingArgs;
use crate::escaping::unescaped;
use crate::expiry::{self, ExpiryArgs};
use crate::failure::{Failure, Result};
use crate::framing::Fields;
use crate::lines::{Input, Line, Lines, check_lengths, split_at_tab};
use crate::progress::{Progress, ProgressArgs};
use crate::store::ClockArgs;
use crate::text::{counted, thousands};
use crate::{Answer, interrupt, json, print_error, store};

/// Write the keys and values of a file, key TAB value a line; makes the store if there is none
///
/// The lines are text, as `criba --help` describes it and `scan` prints it; a CR before the newline is left
/// out. They are stored in batches of 64 KiB. A wrong line, SIGINT or SIGTERM ends the command: it stores the lines
/// before, and prints their number. With --skip-bad it leaves wrong lines out, and ends with exit code 1.
///
/// With --sorted all lines are stored at one moment, or none, as tables on a low level: fewer bytes are written. The
/// keys must ascend in the order of their bytes, each key once, as `scan` and `dump` print them.
///
/// The lines of a dump have their own expiries, or none: such a key never expires. Others expire as --expires-in
/// says, or by the store's default.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The file, plain or gzipped; - is standard input
    file: PathBuf,
    /// Take bytes as they are, without escapes: the key up to the first TAB, the value up to the
    /// newline. A value that ends with CR is refused, unless --crlf says that each line ends so
    #[arg(long)]
    raw: bool,
    /// The lines end with CR and newline
    #[arg(long, requires = "raw")]
    crlf: bool,
    /// Leave wrong lines out, and print the first ten reasons
    #[arg(long, conflicts_with = "sorted")]
    skip_bad: bool,
    /// A new file that gets the wrong lines, but for those that are much too long
    #[arg(long, value_name = "FILE", requires = "skip_bad")]
    rejects: Option<PathBuf>,
    /// Ingest sorted lines, all or none; =auto reads a regular file once before, and loads it as usual if it is not sorted
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes"
    )]
    sorted: Option<Sorted>,
    /// Print what was done as a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    progress: ProgressArgs,
    #[command(flatten)]
    expiry: ExpiryArgs,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    settings: SettingArgs,
}

/// Which lines are ingested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sorted {
    /// All; an error if they are not sorted
    Yes,
    /// Those of a sorted file
    Auto,
}

/// The size of a batch: a system call per write would cost more than the write.
const BATCH_BYTES: usize = 64 << 10;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let what = match args.sorted {
        None => "loading",
        Some(Sorted::Yes) => "ingesting",
        Some(Sorted::Auto) => "checking the order",
    };
    let bar = Progress::of_lines(args.progress, what);
    let loading = Arc::new(Mutex::new(Loading::of(args)));
    let _guard = interrupt::before_end({
        let (loading, bar) = (Arc::clone(&loading), bar.clone());
        let json = args.json;
        move || end(&loading, &bar, json)
    });
    let input = Input::open(&args.file)?;
    if args.skip_bad {
        locked(&loading).rejects = Some(Rejects::new(args.rejects.as_deref())?);
    }
    if args.sorted == Some(Sorted::Auto) {
        sorted::check_is_file(&input)?;
    }
    let lines = input.lines(&bar, !args.raw)?; // first: a mistyped name makes no store
    if args.dir.join("CURRENT").exists() {
        locked(&loading).db()?; // so that an error comes before the work
    }
    let loaded = match args.sorted {
        None => load(args, lines, &loading),
        Some(Sorted::Yes) => sorted::ingest(args, lines, &loading, &bar, 0),
        Some(Sorted::Auto) => sorted::check_and_load(args, &input, lines, &loading, &bar),
    };
    interrupt::wait_if_ending(); // it prints the end
    bar.finish_and_clear();
    let settled = loaded.and_then(|()| settle(&loading));
    let mut done = locked(&loading);
    let closed = done.close();
    let stored = done.stored;
    let ended = closed.and(settled);
    if args.json {
        let tables = ended.as_ref().ok().copied();
        json::print_line(&done.as_json(tables, ended.is_ok()), out)?;
    } else if let Ok(tables) = ended {
        let (lines, tables) = (counted(stored, "line"), counted(tables, "table"));
        let how = if done.is_ingested { "ingested" } else { "written" };
        writeln!(out, "{lines} {how}; the store has {tables}")?;
        if let Some(line) = done.unsorted_line {
            let line = thousands(line);
            writeln!(
                out,
                "not ingested: the key of line {line} is not greater than the one before"
            )?;
        }
        if done.rejected() > 0 {
            writeln!(out, "{} left out", counted(done.rejected(), "wrong line"))?;
        }
    }
    let answer = if done.rejected() > 0 { Answer::No } else { Answer::Yes };
    drop(done);
    ended.map(|_| answer).map_err(|failure| with_count(failure, input.path(), stored))
}

/// Waits for the end of the background work. Returns the number of tables.
fn settle(loading: &Mutex<Loading>) -> Result<u64> {
    // Not locked meanwhile, so that a signal ends the process.
    let db = locked(loading).db()?.clone();
    db.wait_until_settled()?;
    Ok(db.tables().len() as u64)
}

/// A store that is being filled. It is made when the first lines are stored.
#[derive(Default)]
struct Loading {
    dir: PathBuf,
    settings: SettingArgs,
    clock: ClockArgs,
    /// Of lines without an expiry of their own; `None` for the store's default.
    expiry: Option<Expiry>,
    sorted: Option<Sorted>,
    db: Option<Db>,
    batch: Batch,
    /// Lines in the batch.
    waiting: u64,
    stored: u64,
    /// With `--skip-bad`.
    rejects: Option<Rejects>,
    /// A thread ingests, and has stored nothing yet.
    is_ingesting: bool,
    is_ingested: bool,
    /// The first line that is not sorted, of a file that was checked.
    unsorted_line: Option<u64>,
}

impl Loading {
    fn of(args: &Args) -> Self {
        let (dir, settings, clock) = (args.dir.clone(), args.settings.clone(), args.clock);
        let (expiry, sorted) = (args.expiry.expires_in, args.sorted);
        Self { dir, settings, clock, expiry, sorted, ..Self::default() }
    }

    fn as_json(&self, tables: Option<u64>, complete: bool) -> Value {
        let mut object = json!({ "lines": self.stored, "tables": tables, "complete": complete });
        if self.sorted.is_some() {
            object["ingested"] = self.is_ingested.into();
        }
        if self.sorted == Some(Sorted::Auto) {
            object["unsorted_line"] = self.unsorted_line.into();
        }
        if self.rejects.is_some() {
            object["rejected"] = self.rejected().into();
        }
        object
    }

    fn rejected(&self) -> u64 {
        self.rejects.as_ref().map_or(0, |rejects| rejects.count)
    }

    fn db(&mut self) -> Result<&Db> {
        if self.db.is_none() {
            self.db = Some(store::to_fill(&self.dir, &self.settings, self.clock)?);
        }
        Ok(self.db.as_ref().expect("opened above"))
    }

    fn put(&mut self, (key, value, expiry): &Item<'_>) -> Result<()> {
        match expiry.or(self.expiry) {
            Some(expiry) => self.batch.put_expiring(key, value, expiry),
            None => self.batch.put(key, value),
        };
        self.waiting += 1;
        if self.batch.bytes() >= BATCH_BYTES { self.store() } else { Ok(()) }
    }

    fn store(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting > 0 {
            let batch = std::mem::take(&mut self.batch);
            self.db()?.write(batch)?;
            self.stored += waiting;
        }
        Ok(())
    }

    /// Stores the lines that wait, and closes the store.
    fn close(&mut self) -> Result<()> {
        self.store()?;
        self.db.take().map_or(Ok(()), Db::close)?;
        self.rejects.as_mut().map_or(Ok(()), Rejects::finish)
    }
}

fn locked(loading: &Mutex<Loading>) -> MutexGuard<'_, Loading> {
    loading.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load(args: &Args, mut lines: Lines, loading: &Mutex<Loading>) -> Result<()> {
    let name = lines.path();
    while let Some(line) = lines.next_of_any_length()? {
        let item = match item_of(args, name, &line) {
            Ok(item) => item,
            Err(failure) => {
                if let Some(rejects) = &mut locked(loading).rejects {
                    rejects.add(&line, &failure)?;
                    continue;
                }
                return Err(lines.cause(failure));
            }
        };
        interrupt::wait_if_ending(); // this thread would take the lock again and again
        locked(loading).put(&item)?;
    }
    locked(loading).store()
}

/// The key, the value and the expiry of a line.
fn item_of<'l>(args: &Args, file: &Path, line: &Line<'l>) -> Result<Item<'l>> {
    line.check_length(file)?;
    if args.expiry.expires_in.is_some() && line.fields != Fields::Plain {
        let found = "a dump, whose keys have their own expiries; leave --expires-in out";
        return Err(Failure::unfit(file, "lines for --expires-in", found));
    }
    let number = line.number;
    let (key, value, expiry) = parsed(line, args).map_err(|(expected, found)| {
        Failure::unfit(file, format!("{expected} on line {number}"), found)
    })?;
    check_lengths(file, number, &key, &value)?;
    Ok((key, value, expiry))
}

/// A key, its value, and the expiry that a dump has for it.
type Item<'l> = (Cow<'l, [u8]>, Cow<'l, [u8]>, Option<Expiry>);

/// The key, the value and the expiry of a line, or what was expected and found.
fn parsed<'l>(
    line: &Line<'l>,
    args: &Args,
) -> std::result::Result<Item<'l>, (&'static str, String)> {
    let Line { bytes: line, fields, .. } = *line;
    let before_cr = line.strip_suffix(b"\r");
    if args.raw && !args.crlf && before_cr.is_some() {
        let found = "a CRLF line end; add --crlf, or leave --raw out".to_owned();
        return Err(("no CR before the newline", found));
    }
    let (key, value) = split_at_tab(before_cr.unwrap_or(line));
    let value = value.ok_or_else(|| {
        let found = "a line without a TAB (one follows the key also if the value is empty)";
        ("key TAB value", found.to_owned())
    })?;
    if args.raw {
        return Ok((Cow::Borrowed(key), Cow::Borrowed(value), None));
    }
    let (value, expiry) = match fields {
        Fields::Plain => (value, None),
        Fields::KeyValue => (value, Some(Expiry::Never)),
        Fields::KeyValueExpires => {
            let (value, expires) = split_at_tab(value);
            let expiry = expires.and_then(expiry::parsed).ok_or_else(|| {
                let found = expires.map_or("a line with one TAB".to_owned(), |found| {
                    format!("\"{}\" behind the second TAB", String::from_utf8_lossy(found))
                });
                ("key TAB value TAB milliseconds since 1970, or nothing", found)
            })?;
            (value, Some(expiry))
        }
    };
    let text =
        |text| unescaped(text).map_err(|misspelt| ("text", format!("{misspelt}, or use --raw")));
    Ok((text(key)?, text(value)?, expiry))
}

/// The end by a signal.
fn end(loading: &Mutex<Loading>, bar: &Progress, json: bool) {
    let mut loading = sorted::locked_at_end(loading);
    bar.finish_and_clear();
    if let Err(failure) = loading.close() {
        print_error(&failure.to_string());
    }
    print_error(&format!("interrupted; lines stored: {}", thousands(loading.stored)));
    if json {
        let mut object = Vec::new();
        let _ = json::print_line(&loading.as_json(None, loading.is_ingested), &mut object);
        // The main thread has standard output locked, and writes nothing more.
        let _ = rustix::io::write(io::stdout(), &object);
    }
    // Kept locked: no line is stored after this count.
    std::mem::forget(loading);
}

/// Adds how many lines are stored to the message of a failure.
fn with_count(failure: Failure, file: &Path, stored: u64) -> Failure {
    let count = format!("; lines stored: {}", thousands(stored));
    match failure {
        Failure::Unfit { path, expected, found } => {
            Failure::Unfit { path, expected, found: found + &count }
        }
        Failure::Cut { path, found } => Failure::Cut { path, found: found + &count },
        Failure::File { action, path, source } => {
            Failure::File { action, path, source: io::Error::other(format!("{source}{count}")) }
        }
        other => Failure::file("load", file, io::Error::other(format!("{other}{count}"))),
    }
}
