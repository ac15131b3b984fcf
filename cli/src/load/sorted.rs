//! `criba load --sorted`: lines with ascending keys are ingested.

use std::iter;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;

use super::{Args, Loading, load, locked, pair_of};
use crate::escaping::escaped;
use crate::failure::{Failure, Result};
use crate::lines::{Input, Lines};
use crate::{interrupt, progress};

/// Refuses an input that cannot be read twice.
pub(super) fn check_is_file(input: &Input) -> Result<()> {
    if input.is_file() {
        return Ok(());
    }
    let name = input.path().display();
    Err(Failure::Usage(format!(
        "--sorted=auto: {name} is no regular file, so its order cannot be checked first; \
         --sorted takes sorted lines from it"
    )))
}

/// Ingests the lines of a file if they are sorted, or else loads them.
pub(super) fn check_and_load(
    args: &Args,
    input: &Input,
    lines: Lines,
    loading: &Mutex<Loading>,
    bar: &ProgressBar,
) -> Result<()> {
    let order = order_of(lines, args.raw)?;
    let lines = input.lines(bar, !args.raw)?;
    match order {
        Order::Sorted(count) => {
            bar.set_message("ingesting");
            ingest(args, lines, loading, bar, count)
        }
        Order::Unsorted(line) => {
            bar.set_message("loading");
            locked(loading).unsorted_line = Some(line);
            load(args, lines, loading)
        }
    }
}

enum Order {
    /// So many lines.
    Sorted(u64),
    /// The first line that is not sorted.
    Unsorted(u64),
}

/// Reads lines up to one that is not sorted.
fn order_of(mut lines: Lines, raw: bool) -> Result<Order> {
    let name = lines.path();
    let mut last = LastKey::default();
    let mut count = 0;
    while let Some((number, line)) = lines.next()? {
        match pair_of(name, number, line, raw) {
            Ok((key, _)) if last.replace(&key) => count += 1,
            Ok(_) => return Ok(Order::Unsorted(number)),
            Err(failure) => return Err(lines.cause(failure)),
        }
    }
    Ok(Order::Sorted(count))
}

/// The key of the line before.
#[derive(Default)]
struct LastKey(Option<Vec<u8>>);

impl LastKey {
    /// Whether a key is greater. It is the last one then.
    fn replace(&mut self, key: &[u8]) -> bool {
        match &mut self.0 {
            Some(last) if key <= &**last => return false,
            Some(last) => {
                last.clear();
                last.extend_from_slice(key);
            }
            none => *none = Some(key.to_vec()),
        }
        true
    }
}

/// Ingests lines, at least `count`. Nothing is stored if this fails.
pub(super) fn ingest(
    args: &Args,
    lines: Lines,
    loading: &Mutex<Loading>,
    bar: &ProgressBar,
    count: u64,
) -> Result<()> {
    let raw = args.raw;
    let mut pairs = Pairs { lines, raw, loading, bar, count, last: LastKey::default(), held: None };
    // First, so that a wrong first line makes no store.
    let Some(first) = pairs.next().transpose()? else { return Ok(()) };
    let db = {
        let loading = pairs.held.as_mut().expect("held after each pair");
        let db = loading.db()?.clone();
        loading.is_ingesting = true;
        db
    };
    let ingested = db.ingest(iter::once(Ok(first)).chain(&mut pairs));
    let mut loading = pairs.held.take().expect("held after each pair");
    loading.is_ingesting = false;
    loading.stored = ingested?;
    loading.is_ingested = true;
    Ok(())
}

/// The pairs of sorted lines.
struct Pairs<'a> {
    lines: Lines<'a>,
    raw: bool,
    loading: &'a Mutex<Loading>,
    bar: &'a ProgressBar,
    /// The least number of lines to come.
    count: u64,
    last: LastKey,
    /// Locked while tables are written and installed, so that a signal finds nothing or all stored.
    held: Option<MutexGuard<'a, Loading>>,
}

impl Pairs<'_> {
    fn read(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let name = self.lines.path();
        let Some((number, line)) = self.lines.next()? else { return Ok(None) };
        let failure = match pair_of(name, number, line, self.raw) {
            Ok((key, value)) if self.last.replace(&key) => {
                return Ok(Some((key.into_owned(), value.into_owned())));
            }
            Ok((key, _)) => {
                let last = shown(self.last.0.as_deref().unwrap_or_default());
                let expected = format!("a key greater than \"{last}\" on line {number}");
                Failure::unfit(name, expected, format!("\"{}\"", shown(&key)))
            }
            Err(failure) => failure,
        };
        Err(self.lines.cause(failure))
    }
}

impl Iterator for Pairs<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.held = None; // reading may wait for a pipe
        let pair = self.read();
        self.held = Some(locked(self.loading));
        self.count = self.count.saturating_sub(1);
        if interrupt::is_ending() {
            return Some(Err(Failure::Usage("interrupted".to_owned())));
        }
        if matches!(pair, Ok(None)) {
            progress::wait(self.bar, "installing the tables");
        }
        pair.transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count as usize, None)
    }
}

/// A key in a message: its beginning, if it is long.
fn shown(key: &[u8]) -> String {
    const MOST: usize = 64;
    match key.get(..MOST) {
        Some(start) if key.len() > MOST => format!("{}…", escaped(start)),
        _ => escaped(key),
    }
}

/// Locks what is loaded when a signal has come. A thread that ingests ends before, and removes its tables, unless it
/// waits for input: then the next opening removes them.
pub(super) fn locked_at_end(loading: &Mutex<Loading>) -> MutexGuard<'_, Loading> {
    for _ in 0..100 {
        let loading = locked(loading);
        if !loading.is_ingesting {
            return loading;
        }
        drop(loading);
        thread::sleep(Duration::from_millis(10));
    }
    locked(loading)
}
