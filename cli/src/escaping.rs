//! Bytes as text and back, for arguments, for the lines of `load`, and for all that is printed.
//!
//! Each byte string has one text, so two texts are never the same key. [`escaped`] writes that text.
//! [`unescaped`] reads it and refuses every other one.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter, Write};
use std::os::unix::ffi::OsStrExt;

use crate::failure::{Failure, Result};

/// The text of bytes. It has no control character, no TAB and no newline.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    if is_plain(bytes) {
        return bytes.iter().map(|&byte| char::from(byte)).collect();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(at) = rest.find(|char| char == '\\' || is_hidden(char)) {
            let (plain, from) = rest.split_at(at);
            let length = from.chars().next().map_or(0, char::len_utf8);
            text.push_str(plain);
            match &from[..length] {
                "\\" => text.push_str("\\\\"),
                "\t" => text.push_str("\\t"),
                "\n" => text.push_str("\\n"),
                "\r" => text.push_str("\\r"),
                hidden => push_hex(&mut text, hidden.as_bytes()),
            }
            rest = &from[length..];
        }
        text.push_str(rest);
        push_hex(&mut text, chunk.invalid());
    }
    text
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(text, "\\x{byte:02x}").expect("a String takes everything");
    }
}

/// Whether bytes are their own text, as almost all are.
fn is_plain(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\')
}

/// Whether a terminal obeys this character or shows it as nothing: control characters, separators of lines and
/// paragraphs, marks of direction, and the byte order mark.
fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(
            char,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// The first part of a text that [`escaped`] does not write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misspelt {
    found: String,
    /// How the same bytes are written; `None` after a backslash that begins no escape.
    written: Option<String>,
}

impl Display for Misspelt {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let found = &self.found;
        match &self.written {
            None => write!(f, "{found}, which is no escape; write \\\\ for a backslash"),
            Some(written) if found.starts_with('\\') => {
                write!(f, "{found}, which is written {written}; write \\\\ for a backslash")
            }
            Some(written) => write!(f, "{found}; write {written}"),
        }
    }
}

/// The bytes of a text.
pub(crate) fn unescaped(text: &[u8]) -> std::result::Result<Cow<'_, [u8]>, Misspelt> {
    if is_plain(text) {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (length, byte) = first_unit(rest);
        bytes.push(byte.ok_or_else(|| {
            let end = rest.len().min(if rest.starts_with(b"\\x") { 4 } else { 2 });
            Misspelt { found: shown(&rest[..end]), written: None }
        })?);
        rest = &rest[length..];
    }
    let right = escaped(&bytes);
    if right.as_bytes() == text {
        return Ok(Cow::Owned(bytes));
    }
    Err(first_difference(text, &right))
}

/// The length of the escape or byte that begins a text, and its byte.
fn first_unit(text: &[u8]) -> (usize, Option<u8>) {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    match *text {
        [b'\\', b'x', high, low, ..] => {
            (4, digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low))
        }
        [b'\\', b'\\', ..] => (2, Some(b'\\')),
        [b'\\', b't', ..] => (2, Some(b'\t')),
        [b'\\', b'n', ..] => (2, Some(b'\n')),
        [b'\\', b'r', ..] => (2, Some(b'\r')),
        [b'\\', ..] | [] => (text.len(), None),
        [byte, ..] => (1, Some(byte)),
    }
}

fn first_difference(text: &[u8], right: &str) -> Misspelt {
    let differs = text.iter().zip(right.as_bytes()).take_while(|(a, b)| a == b).count();
    let mut at = 0;
    let mut length = first_unit(text).0;
    while at + length <= differs {
        at += length;
        length = first_unit(&text[at..]).0;
    }
    // A character may begin as bytes and end as escapes.
    let start = (0..=at).rev().find(|&at| right.is_char_boundary(at)).unwrap_or(0);
    let valid = text[start..].utf8_chunks().next().map_or("", |chunk| chunk.valid());
    if let Some(char) = valid.chars().next().filter(|&char| is_hidden(char)) {
        let written = escaped(char.encode_utf8(&mut [0; 4]).as_bytes());
        return Misspelt { found: format!("U+{:04X}", u32::from(char)), written: Some(written) };
    }
    let found = shown(&text[start..at + length]);
    let right = &right[start..];
    let written = match first_unit(right.as_bytes()) {
        (1, _) => right.chars().next().map_or(String::new(), String::from),
        (length, _) => right[..length].to_owned(),
    };
    Misspelt { found, written: Some(written) }
}

/// A few bytes for a message.
fn shown(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) if !text.contains(is_hidden) => text.to_owned(),
        _ => bytes.iter().fold("byte".to_owned(), |text, byte| format!("{text} {byte:02x}")),
    }
}

/// The bytes of an argument.
///
/// # Errors
/// [`Failure::Usage`].
pub(crate) fn of_argument(argument: &OsStr) -> Result<Vec<u8>> {
    unescaped(argument.as_bytes()).map(Cow::into_owned).map_err(|misspelt| {
        let argument = argument.to_string_lossy().replace(is_hidden, "\u{fffd}");
        Failure::Usage(format!("the argument {argument}: found {misspelt}"))
    })
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Pieces whose combinations are what the form must tell apart.
    const PIECES: [&[u8]; 22] = [
        b"\\",
        b"x",
        b"2d",
        b"-",
        b"\t",
        b"\n",
        b"\r",
        b"t",
        b"\\\\",
        b"\\x2d",
        b"\\xff",
        b"\\xc3",
        b"\\xa9",
        b"\xc3",
        b"\xa9",
        "é".as_bytes(),
        "日本".as_bytes(),
        b"\x7f",
        b"\xc2\x85",
        "\u{2028}".as_bytes(),
        "\u{202e}".as_bytes(),
        b"\xff",
    ];

    fn random_bytes(random: &mut ChaCha8Rng) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..random.random_range(0..8) {
            match random.random_range(0..3) {
                0 => bytes.push(random.random()),
                _ => bytes.extend_from_slice(PIECES[random.random_range(0..PIECES.len())]),
            }
        }
        bytes
    }

    /// A text is read if and only if it is what its bytes are written as: so no two texts are one key.
    #[test]
    fn each_byte_string_has_one_text() {
        let mut random = ChaCha8Rng::seed_from_u64(26);
        let mut read = 0;
        for _ in 0..200_000 {
            let bytes = random_bytes(&mut random);
            let text = escaped(&bytes);
            assert!(!text.contains(is_hidden), "{text}");
            assert_eq!(unescaped(text.as_bytes()).as_deref(), Ok(&*bytes), "{text}");
            if let Ok(meant) = unescaped(&bytes) {
                assert_eq!(escaped(&meant).as_bytes(), bytes);
                read += 1;
            }
        }
        assert!((10_000..190_000).contains(&read), "{read}");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescaped(escaped(&all).as_bytes()).as_deref(), Ok(&*all));
    }

    #[test]
    fn text_is_printed_as_it_is_and_all_else_escaped() {
        let pairs: [(&[u8], &str); 8] = [
            ("é 日本 🦀 ~".as_bytes(), "é 日本 🦀 ~"),
            (b"a\\b\tc\n\r", "a\\\\b\\tc\\n\\r"),
            (b"\x00\x1b[2J\x7f", "\\x00\\x1b[2J\\x7f"),
            ("\u{85}".as_bytes(), "\\xc2\\x85"),
            (
                "\u{2028}\u{202e}\u{2066}".as_bytes(),
                "\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xe2\\x81\\xa6",
            ),
            ("\u{feff}a".as_bytes(), "\\xef\\xbb\\xbfa"),
            (b"\xff\xc3(", "\\xff\\xc3("),
            (b"", ""),
        ];
        for (bytes, text) in pairs {
            assert_eq!(escaped(bytes), text);
        }
    }

    #[test]
    fn what_printing_never_writes_is_refused_with_what_to_write() {
        let pairs: [(&[u8], &str); 13] = [
            (b"a\\x2db", "\\x2d, which is written -; write \\\\ for a backslash"),
            (b"\\d", "\\d, which is no escape; write \\\\ for a backslash"),
            (b"a\\", "\\, which is no escape; write \\\\ for a backslash"),
            (b"\\x4", "\\x4, which is no escape; write \\\\ for a backslash"),
            (b"\\xg0", "\\xg0, which is no escape; write \\\\ for a backslash"),
            (b"\\x5c", "\\x5c, which is written \\\\; write \\\\ for a backslash"),
            (b"\\xFF", "\\xFF, which is written \\xff; write \\\\ for a backslash"),
            (b"\\x09", "\\x09, which is written \\t; write \\\\ for a backslash"),
            (b"\\xc3\\xa9", "\\xc3, which is written é; write \\\\ for a backslash"),
            (b"\xc3\\xa9", "byte c3 5c 78 61 39; write é"),
            (b"a\tb", "U+0009; write \\t"),
            (b"caf\xe9", "byte e9; write \\xe9"),
            ("\u{202e}".as_bytes(), "U+202E; write \\xe2\\x80\\xae"),
        ];
        for (text, told) in pairs {
            assert_eq!(unescaped(text).expect_err(told).to_string(), told);
        }
    }

    #[test]
    fn an_argument_is_named_without_what_a_terminal_obeys() {
        let failure = of_argument(OsStr::new("\u{1b}[2J\\x2d")).expect_err("two mistakes");
        assert_eq!(failure.to_string(), "the argument \u{fffd}[2J\\x2d: found U+001B; write \\x1b");
    }
}
