//! Reads files of lines, plain or gzipped.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Cursor, Read};
use std::path::Path;

use criba::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use flate2::read::MultiGzDecoder;
use indicatif::ProgressBar;

use crate::failure::{Failure, Result};

/// The bytes that begin a gzip file: its magic, and the only method in use.
pub(crate) const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// The name of standard input in messages.
pub(crate) const STANDARD_INPUT: &str = "standard input";

pub(crate) struct Lines<'a> {
    path: &'a Path,
    file: BufReader<Box<dyn Read>>,
    action: &'static str,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    /// Opens a file, or standard input for `-`. A file that begins as gzip files do is gzipped.
    pub(crate) fn open(path: &'a Path) -> Result<Self> {
        Self::open_with(path, &ProgressBar::hidden())
    }

    /// As [`open`](Self::open). The bar counts the bytes that are read from a file, and has its length if that
    /// is known.
    pub(crate) fn open_with(path: &'a Path, bar: &ProgressBar) -> Result<Self> {
        if path == Path::new("-") {
            return Self::of(Path::new(STANDARD_INPUT), io::stdin().lock());
        }
        let file = File::open(path).map_err(|source| Failure::file("open", path, source))?;
        let about = file.metadata().map_err(|source| Failure::file("open", path, source))?;
        if about.is_file() {
            bar.set_length(about.len());
        }
        Self::of(path, bar.wrap_read(file))
    }

    fn of(path: &'a Path, mut source: impl Read + 'static) -> Result<Self> {
        let mut head = Vec::new();
        let begun = source.by_ref().take(GZIP.len() as u64).read_to_end(&mut head);
        begun.map_err(|source| Failure::file("read its lines", path, source))?;
        let gzipped = head == GZIP;
        let source = Cursor::new(head).chain(source);
        let file: Box<dyn Read> =
            if gzipped { Box::new(MultiGzDecoder::new(source)) } else { Box::new(source) };
        let action = if gzipped { "read it as gzipped lines" } else { "read its lines" };
        let file = BufReader::with_capacity(1 << 16, file);
        Ok(Self { path, file, action, line: Vec::new(), number: 0 })
    }

    /// The file's name in messages.
    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// The next line, without newline, and its number; the first is 1. Refuses a line before all of it is read if
    /// its key or value is too long for a store, whatever escapes follow: a small gzipped file can hold one of
    /// gigabytes.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        self.line.clear();
        self.number += 1;
        let mut length = LeastLength::default();
        loop {
            let read = self.file.fill_buf();
            let read = read.map_err(|source| Failure::file(self.action, self.path, source))?;
            let newline = read.iter().position(|&byte| byte == b'\n');
            let taken = &read[..newline.map_or(read.len(), |at| at + 1)];
            let is_end = newline.is_some() || taken.is_empty();
            self.line.extend_from_slice(taken);
            length.add(taken);
            let bytes = taken.len();
            self.file.consume(bytes);
            if length.is_too_long() {
                let (what, limit) = length.what();
                let expected = format!("a {what} of at most {limit} bytes on line {}", self.number);
                return Err(Failure::unfit(self.path, expected, "a longer one"));
            }
            if is_end {
                let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
                return Ok((!self.line.is_empty()).then_some((self.number, line)));
            }
        }
    }

    /// Passes each line, as [`next`](Self::next) returns it, to `take`.
    pub(crate) fn for_each(mut self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        while let Some((number, line)) = self.next()? {
            take(number, line)?;
        }
        Ok(())
    }
}

/// The least number of bytes that the key or value at the end of a part of a line can have.
#[derive(Default)]
struct LeastLength {
    is_value: bool,
    bytes: usize,
    backslashes: usize,
}

impl LeastLength {
    fn add(&mut self, text: &[u8]) {
        for &byte in text {
            if byte == b'\t' && !self.is_value {
                *self = Self { is_value: true, ..Self::default() };
                continue;
            }
            self.bytes += 1;
            self.backslashes += usize::from(byte == b'\\');
        }
    }

    fn what(&self) -> (&'static str, usize) {
        if self.is_value { ("value", MAX_VALUE_BYTES) } else { ("key", MAX_KEY_BYTES) }
    }

    fn is_too_long(&self) -> bool {
        const ESCAPE: usize = r"\x00".len();
        const LINE_END: usize = "\r\n".len();
        let text = self.bytes.saturating_sub(LINE_END);
        // Each byte takes one character, or as many as an escape.
        let least = text.saturating_sub((ESCAPE - 1) * self.backslashes).max(text / ESCAPE);
        least > self.what().1
    }
}

/// Refuses a key or value that is too long for a store, with its line number.
pub(crate) fn check_lengths(path: &Path, line: u64, key: &[u8], value: &[u8]) -> Result<()> {
    for (what, bytes, limit) in [("key", key, MAX_KEY_BYTES), ("value", value, MAX_VALUE_BYTES)] {
        if bytes.len() > limit {
            let expected = format!("a {what} of at most {limit} bytes on line {line}");
            return Err(Failure::unfit(path, expected, format!("one of {}", bytes.len())));
        }
    }
    Ok(())
}

/// The parts of a line before and after its first TAB.
pub(crate) fn split_at_tab(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match line.iter().position(|&byte| byte == b'\t') {
        Some(tab) => (&line[..tab], Some(&line[tab + 1..])),
        None => (line, None),
    }
}
