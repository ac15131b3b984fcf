//! `criba load --sorted`: lines with ascending keys are ingested.

use std::iter;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use criba::Expiry;

use super::{Args, Loading, item_of, load, locked};
use crate::escaping::escaped;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::lines::{Input, Lines};
use crate::progress::Progress;

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
    bar: &Progress,
) -> Result<()> {
    let order = order_of(args, lines)?;
    let lines = input.lines(bar, !args.raw)?;
    match order {
        Order::Sorted(count) => {
            bar.begin("ingesting");
            ingest(args, lines, loading, bar, count)
        }
        Order::Unsorted(line) => {
            bar.begin("loading");
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
fn order_of(args: &Args, mut lines: Lines) -> Result<Order> {
    let name = lines.path();
    let mut last = LastKey::default();
    let mut count = 0;
    while let Some(line) = lines.next()? {
        match item_of(args, name, &line) {
            Ok((key, ..)) if last.replace(&key) => count += 1,
            Ok(_) => return Ok(Order::Unsorted(line.number)),
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
    bar: &Progress,
    count: u64,
) -> Result<()> {
    let last = LastKey::default();
    let mut items = Items { args, lines, loading, bar, count, last, held: None };
    // First, so that a wrong first line makes no store.
    let Some(first) = items.next().transpose()? else { return Ok(()) };
    let (db, expiry) = {
        let loading = items.held.as_mut().expect("held after each item");
        let db = loading.db()?.clone();
        loading.is_ingesting = true;
        (db, loading.expiry)
    };
    // Each line of a dump has an expiry, and no other line has one.
    let ingested = match first.2.or(expiry) {
        Some(first_expiry) => {
            let of = |(key, value, own): Item| (key, value, own.unwrap_or(first_expiry));
            db.ingest_expiring(iter::once(Ok(first)).chain(&mut items).map(|item| item.map(of)))
        }
        None => {
            let of = |(key, value, _): Item| (key, value);
            db.ingest(iter::once(Ok(first)).chain(&mut items).map(|item| item.map(of)))
        }
    };
    let mut loading = items.held.take().expect("held after each item");
    loading.is_ingesting = false;
    loading.stored = ingested?;
    loading.is_ingested = true;
    Ok(())
}

/// A key, its value, and the expiry that a dump has for it.
type Item = (Vec<u8>, Vec<u8>, Option<Expiry>);

/// The items of sorted lines.
struct Items<'a> {
    args: &'a Args,
    lines: Lines<'a>,
    loading: &'a Mutex<Loading>,
    bar: &'a Progress,
    /// The least number of lines to come.
    count: u64,
    last: LastKey,
    /// Locked while tables are written and installed, so that a signal finds nothing or all stored.
    held: Option<MutexGuard<'a, Loading>>,
}

impl Items<'_> {
    fn read(&mut self) -> Result<Option<Item>> {
        let name = self.lines.path();
        let Some(line) = self.lines.next()? else { return Ok(None) };
        let failure = match item_of(self.args, name, &line) {
            Ok((key, value, expiry)) if self.last.replace(&key) => {
                return Ok(Some((key.into_owned(), value.into_owned(), expiry)));
            }
            Ok((key, ..)) => {
                let last = shown(self.last.0.as_deref().unwrap_or_default());
                let expected = format!("a key greater than \"{last}\" on line {}", line.number);
                Failure::unfit(name, expected, format!("\"{}\"", shown(&key)))
            }
            Err(failure) => failure,
        };
        Err(self.lines.cause(failure))
    }
}

impl Iterator for Items<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        self.held = None; // reading may wait for a pipe
        let item = self.read();
        self.held = Some(locked(self.loading));
        self.count = self.count.saturating_sub(1);
        if interrupt::is_ending() {
            return Some(Err(Failure::Usage("interrupted".to_owned())));
        }
        if matches!(item, Ok(None)) {
            self.bar.wait("installing the tables");
        }
        item.transpose()
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
