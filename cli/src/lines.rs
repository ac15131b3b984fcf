//! Reads files of lines, plain or gzipped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use criba::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use flate2::read::MultiGzDecoder;

use crate::failure::{Failure, Result};

pub(crate) struct Lines<'a> {
    path: &'a Path,
    file: BufReader<Box<dyn Read>>,
    action: &'static str,
}

impl<'a> Lines<'a> {
    /// Opens a file, or standard input for `-`. A file whose name ends in `.gz` is gzipped.
    pub(crate) fn open(path: &'a Path) -> Result<Self> {
        let gzipped = path.extension().is_some_and(|extension| extension == "gz");
        let file: Box<dyn Read> = if path == Path::new("-") {
            Box::new(io::stdin().lock())
        } else {
            Box::new(File::open(path).map_err(|source| Failure::file("open", path, source))?)
        };
        let file: Box<dyn Read> = if gzipped { Box::new(MultiGzDecoder::new(file)) } else { file };
        let action = if gzipped { "read it as gzipped lines" } else { "read its lines" };
        Ok(Self { path, file: BufReader::with_capacity(1 << 16, file), action })
    }

    /// Passes each line, without newline and numbered from 1, to `take`.
    pub(crate) fn for_each(mut self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = self.file.read_until(b'\n', &mut line);
            if read.map_err(|source| Failure::file(self.action, self.path, source))? == 0 {
                break;
            }
            take(number, line.strip_suffix(b"\n").unwrap_or(&line))?;
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
