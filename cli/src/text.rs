//! Bytes as text and back, and numbers for readers.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use criba::PrefixExtractor;

/// Printable ASCII as it is; other bytes, and the backslash, as `\xNN`. The result has no TAB and no newline.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if (b' '..=b'~').contains(&byte) && byte != b'\\' {
            text.push(char::from(byte));
        } else {
            write!(text, "\\x{byte:02x}").expect("a String takes everything");
        }
    }
    text
}

/// The bytes of a text: `\xNN` is one byte; other bytes stand for themselves, also a backslash without `xNN`.
pub(crate) fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        match *rest {
            [b'\\', b'x', high, low, ref after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |c| char::from(c).to_digit(16).unwrap_or(0) as u8;
                bytes.push(digit(high) << 4 | digit(low));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

pub(crate) fn of_argument(argument: &OsStr) -> Vec<u8> {
    unescaped(argument.as_bytes())
}

/// A number with a comma between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 table", "2 tables".
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number))
}

/// A probability as a percentage with two to four significant digits, never with an exponent; "–" for none.
pub(crate) fn percent(share: Option<f64>) -> String {
    match share.map(|share| share * 100.0) {
        None => "–".to_owned(),
        Some(percent) if percent >= 10.0 || percent == 0.0 => format!("{percent:.1} %"),
        Some(percent) if percent >= 0.01 => format!("{percent:.3} %"),
        Some(percent) => {
            let places = 1 - percent.log10().floor() as i32;
            format!("{percent:.places$} %", places = places.clamp(0, 20) as usize)
        }
    }
}

/// The number of prefixes in a filter, and their rule.
pub(crate) fn prefixes(number: u64, extractor: Option<PrefixExtractor>) -> String {
    match (number, extractor) {
        (0, None) => "none".to_owned(),
        (_, None) => format!("{}, of a rule unknown to this version", thousands(number)),
        (_, Some(extractor)) => format!("{}, {extractor}", thousands(number)),
    }
}

/// A part of a whole; `None` if the whole is 0.
pub(crate) fn ratio(part: f64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        let text = escaped(&all);
        assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text}");
        assert_eq!(unescaped(text.as_bytes()), all);
        assert_eq!(escaped(b"a\\b\tc\n\xff"), "a\\x5cb\\x09c\\x0a\\xff");
    }

    #[test]
    fn what_is_no_escape_stands_for_itself() {
        for text in ["\\", "\\x", "\\x4", "\\xg0", "\\n", "C:\\dir", "\\\\"] {
            assert_eq!(unescaped(text.as_bytes()), text.as_bytes());
        }
        assert_eq!(unescaped(b"\\x41\\x4A\\x4a"), b"AJJ");
    }

    #[test]
    fn numbers_are_grouped() {
        let grouped = [0, 12, 999, 1000, 12_345, 1_234_567].map(thousands);
        assert_eq!(grouped, ["0", "12", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(counted(1, "table"), "1 table");
        assert_eq!(counted(1000, "table"), "1,000 tables");
    }

    #[test]
    fn percentages_keep_their_digits() {
        let shown = [None, Some(0.0), Some(0.010_04), Some(0.97), Some(1e-6), Some(1.2e-5)];
        assert_eq!(
            shown.map(percent),
            ["–", "0.0 %", "1.004 %", "97.0 %", "0.00010 %", "0.0012 %"]
        );
    }
}
