//! Reads files of lines, plain or gzipped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
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

    /// The next line, without newline, and its number; the first is 1.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        self.line.clear();
        let read = self.file.read_until(b'\n', &mut self.line);
        if read.map_err(|source| Failure::file(self.action, self.path, source))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some((self.number, self.line.strip_suffix(b"\n").unwrap_or(&self.line))))
    }

    /// Passes each line, as [`next`](Self::next) returns it, to `take`.
    pub(crate) fn for_each(mut self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        while let Some((number, line)) = self.next()? {
            take(number, line)?;
        }
        Ok(())
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
