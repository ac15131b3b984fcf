//! The first and the last line of a dump, by which a reader knows that no line is missing.

use std::path::Path;

use crate::failure::{Failure, Result};

/// The first line of a dump begins so. A backslash with this letter is no escape, so no key is written so.
const BEGIN: &str = r"\criba dump, version ";
const VERSION: &str = "1";
/// The last line of a dump begins so.
const END: &str = r"\end of the dump, lines: ";

/// The fields of a line.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fields {
    /// No dump: key and value.
    #[default]
    Plain,
    /// A dump of a store whose keys do not expire.
    KeyValue,
    /// A dump of a store whose keys may expire. Of those that do not, the last field is empty.
    KeyValueExpires,
}

impl Fields {
    const OF_DUMPS: [Self; 2] = [Self::KeyValue, Self::KeyValueExpires];

    fn named(self) -> &'static str {
        match self {
            Self::Plain | Self::KeyValue => ", fields: key value",
            Self::KeyValueExpires => ", fields: key value expires",
        }
    }
}

pub(crate) fn first_line(fields: Fields) -> String {
    format!("{BEGIN}{VERSION}{}", fields.named())
}

pub(crate) fn last_line(lines: u64) -> String {
    format!("{END}{lines}")
}

/// How much of a dump was read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dump {
    /// Before the first line.
    #[default]
    Before,
    /// The input did not begin as a dump.
    None,
    /// After the first line of a dump, and so many others.
    Within(Fields, u64),
    /// After the last line of a dump.
    Ended,
}

impl Dump {
    /// Takes line `number` of a file. Returns the fields if it is a key's: the first and the last line are not.
    pub(crate) fn take(&mut self, file: &Path, number: u64, line: &[u8]) -> Result<Option<Fields>> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Bytes as they are can begin so, but a TAB follows them.
        let whole = if line.contains(&b'\t') { b"" } else { line };
        let begin = whole.strip_prefix(BEGIN.as_bytes());
        let end = whole.strip_prefix(END.as_bytes());
        let refused = |expected: &str, found: String| {
            Err(Failure::unfit(file, format!("{expected} on line {number}"), found))
        };
        match (*self, begin, end) {
            (Self::Ended, ..) => refused("nothing behind a dump", "another line".into()),
            (Self::Before, Some(rest), _) => {
                let named = rest.strip_prefix(VERSION.as_bytes());
                let is_named = |fields: &Fields| named == Some(fields.named().as_bytes());
                let Some(fields) = Fields::OF_DUMPS.into_iter().find(is_named) else {
                    let found = String::from_utf8_lossy(rest);
                    let [without, with] = Fields::OF_DUMPS.map(Fields::named);
                    let expected = format!("a dump of version {VERSION}{without}, or{with}");
                    return refused(&expected, format!("version {found}"));
                };
                *self = Self::Within(fields, 0);
                Ok(None)
            }
            (Self::Within(_, lines), None, Some(count)) => {
                if count != lines.to_string().as_bytes() {
                    let count = String::from_utf8_lossy(count);
                    let found = format!("{lines} lines, and its last line says {count}");
                    return Err(Failure::Cut { path: file.to_owned(), found });
                }
                *self = Self::Ended;
                Ok(None)
            }
            (Self::Within(fields, lines), None, None) => {
                *self = Self::Within(fields, lines + 1);
                Ok(Some(fields))
            }
            (_, None, None) => {
                *self = Self::None;
                Ok(Some(Fields::Plain))
            }
            _ => refused(
                "key TAB value",
                "the first or the last line of a dump, which was sorted, edited or joined; criba dump --plain \
                 prints only keys and values"
                    .into(),
            ),
        }
    }

    /// Refuses a line without its newline, unless it is the last one of a dump.
    pub(crate) fn check_last(self, file: &Path, line: &[u8]) -> Result<()> {
        if line.starts_with(END.as_bytes()) { Ok(()) } else { self.end(file) }
    }

    /// Refuses the end of a file within a dump.
    pub(crate) fn end(self, file: &Path) -> Result<()> {
        let Self::Within(_, lines) = self else { return Ok(()) };
        let found = format!("{lines} lines, and no last line");
        Err(Failure::Cut { path: file.to_owned(), found })
    }
}
