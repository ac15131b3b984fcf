//! Reads files of lines, plain or gzipped.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Cursor, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::Path;

use criba::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use flate2::read::MultiGzDecoder;

use crate::failure::{Failure, Result};
use crate::framing::{Dump, Fields};
use crate::progress::Progress;

/// The bytes that begin a gzip file: its magic, and the only method in use.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// What packed files begin with: RFC 1952, RFC 8878, and the descriptions of the formats of xz and LZ4 frames.
const PACKED: [(&[u8], &str); 5] = [
    (&GZIP, "gzip"),
    (&[0x1f, 0x8b], "gzip by an unknown method"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4"),
];

/// The kind of packed files that begin as these bytes do.
pub(crate) fn packed(head: &[u8]) -> Option<&'static str> {
    PACKED.iter().find(|(magic, _)| head.starts_with(magic)).map(|&(_, kind)| kind)
}

/// The name of standard input in messages.
pub(crate) const STANDARD_INPUT: &str = "standard input";

/// A file of lines, or standard input.
pub(crate) struct Input<'a> {
    path: &'a Path,
    file: File,
    /// The bytes where the lines begin and end; none of a pipe.
    extent: Option<(u64, u64)>,
}

impl<'a> Input<'a> {
    /// Opens a file, or standard input for `-`.
    pub(crate) fn open(path: &'a Path) -> Result<Self> {
        let is_standard = path == Path::new("-");
        let path = if is_standard { Path::new(STANDARD_INPUT) } else { path };
        let open = || {
            if !is_standard {
                return File::open(path);
            }
            Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
        };
        let failed = |source| Failure::file("open", path, source);
        let mut file = open().map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let extent = if about.is_file() {
            Some((file.stream_position().map_err(failed)?, about.len()))
        } else {
            None
        };
        Ok(Self { path, file, extent })
    }

    /// The file's name in messages.
    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// Whether the lines can be read twice.
    pub(crate) fn is_file(&self) -> bool {
        self.extent.is_some()
    }

    /// The lines from the first one on, of text or of bytes. A file that begins as gzip files do is gzipped. The bar
    /// counts the bytes that are read from a regular file, or else the lines.
    pub(crate) fn lines(&self, bar: &Progress, is_text: bool) -> Result<Lines<'a>> {
        let failed = |source| Failure::file("read its lines", self.path, source);
        let mut file = self.file.try_clone().map_err(failed)?;
        let Some((begin, end)) = self.extent else {
            let lines = Lines::of(self.path, file, is_text)?;
            return Ok(Lines { counter: Some(bar.clone()), ..lines });
        };
        file.seek(SeekFrom::Start(begin)).map_err(failed)?;
        bar.begin_bytes(end.saturating_sub(begin));
        Lines::of(self.path, bar.wrap_read(file), is_text)
    }
}

/// The line of a key, without newline.
pub(crate) struct Line<'l> {
    /// The first line of the file is 1.
    pub(crate) number: u64,
    pub(crate) bytes: &'l [u8],
    pub(crate) fields: Fields,
    /// A key or value that is too long for a store, whatever escapes it has, and the limit: the bytes are cut.
    too_long: Option<(&'static str, usize)>,
}

impl Line<'_> {
    pub(crate) fn is_cut(&self) -> bool {
        self.too_long.is_some()
    }

    pub(crate) fn check_length(&self, path: &Path) -> Result<()> {
        let Some((what, limit)) = self.too_long else { return Ok(()) };
        let expected = format!("a {what} of at most {limit} bytes on line {}", self.number);
        Err(Failure::unfit(path, expected, "a longer one"))
    }
}

pub(crate) struct Lines<'a> {
    path: &'a Path,
    file: BufReader<Box<dyn Read>>,
    action: &'static str,
    line: Vec<u8>,
    /// As in [`Line`].
    too_long: Option<(&'static str, usize)>,
    number: u64,
    dump: Dump,
    counter: Option<Progress>,
    /// Whether the lines have escapes, as those of a dump have.
    is_text: bool,
}

impl<'a> Lines<'a> {
    /// Opens a file of bytes as they are, or standard input for `-`.
    pub(crate) fn open(path: &'a Path) -> Result<Self> {
        Input::open(path)?.lines(&Progress::hidden(), false)
    }

    fn of(path: &'a Path, mut source: impl Read + 'static, is_text: bool) -> Result<Self> {
        let mut head = Vec::new();
        // No further than needed: the rest of a pipe may not be written yet.
        while PACKED.iter().any(|(magic, _)| magic.starts_with(&head) && magic.len() > head.len()) {
            let more = source.by_ref().take(1).read_to_end(&mut head);
            if more.map_err(|source| Failure::file("read its lines", path, source))? == 0 {
                break;
            }
        }
        let kind = packed(&head);
        let gzipped = kind == Some("gzip");
        if let Some(kind) = kind.filter(|_| !gzipped) {
            let found = format!("a file packed by {kind}: unpack it first");
            return Err(Failure::unfit(path, "lines, plain or gzipped", found));
        }
        let source = Cursor::new(head).chain(source);
        let file: Box<dyn Read> =
            if gzipped { Box::new(MultiGzDecoder::new(source)) } else { Box::new(source) };
        let action = if gzipped { "read it as gzipped lines" } else { "read its lines" };
        let file = BufReader::with_capacity(1 << 16, file);
        let (line, dump) = (Vec::new(), Dump::default());
        let (too_long, number, counter) = (None, 0, None);
        Ok(Self { path, file, action, line, too_long, number, dump, counter, is_text })
    }

    /// The file's name in messages.
    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    /// The next line of a key, which is not too long for a store.
    ///
    /// # Errors
    /// [`Failure::Cut`]: the file is a dump, and a part is missing.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>> {
        let path = self.path;
        let line = self.next_of_any_length()?;
        line.as_ref().map_or(Ok(()), |line| line.check_length(path))?;
        Ok(line)
    }

    /// The next line of a key, cut if it is too long.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn next_of_any_length(&mut self) -> Result<Option<Line<'_>>> {
        while self.read()? {
            let whole = self.line.strip_suffix(b"\n");
            if whole.is_none() {
                self.dump.check_last(self.path, &self.line)?;
            }
            let line = whole.unwrap_or(&self.line);
            if let Some(fields) = self.dump.take(self.path, self.number, line)? {
                if let Some(counter) = &self.counter {
                    counter.inc(1);
                }
                let bytes = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
                let too_long = self.too_long;
                return Ok(Some(Line { number: self.number, bytes, fields, too_long }));
            }
            if !self.is_text {
                let found = "a dump, which has escapes";
                return Err(Failure::unfit(self.path, "lines of bytes as they are", found));
            }
        }
        self.dump.end(self.path).map(|()| None)
    }

    /// Whether the next line can be read without waiting for the program that writes it.
    pub(crate) fn has_next_whole(&self) -> bool {
        self.file.buffer().contains(&b'\n')
    }

    /// Reads the next line; false at the end. Keeps no more of a line whose key or value is too long for a store,
    /// whatever escapes follow: a small gzipped file can hold one of gigabytes.
    fn read(&mut self) -> Result<bool> {
        self.line.clear();
        self.too_long = None;
        self.number += 1;
        let mut length = LeastLength::default();
        loop {
            let read = self.file.fill_buf();
            let read = read.map_err(|source| Failure::file(self.action, self.path, source))?;
            let newline = read.iter().position(|&byte| byte == b'\n');
            let taken = &read[..newline.map_or(read.len(), |at| at + 1)];
            let is_end = newline.is_some() || taken.is_empty();
            if self.too_long.is_none() {
                self.line.extend_from_slice(taken);
                length.add(taken);
                self.too_long = length.is_too_long().then(|| length.what());
            }
            let bytes = taken.len();
            self.file.consume(bytes);
            if is_end {
                return Ok(!self.line.is_empty());
            }
        }
    }

    /// The error of a file whose lines are wrong: that of its packing if that is damaged, too.
    pub(crate) fn cause(&mut self, failure: Failure) -> Failure {
        match io::copy(&mut self.file, &mut io::sink()) {
            Ok(_) => failure,
            Err(source) => Failure::file(self.action, self.path, source),
        }
    }

    /// Passes the number and the bytes of each line to `take`.
    pub(crate) fn for_each(mut self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        while let Some(line) = self.next()? {
            take(line.number, line.bytes)?;
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
        // The line of a dump may have an expiry.
        const LINE_END: usize = "\t18446744073709551615\r\n".len();
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
