//! Names of files and processes in messages. A terminal obeys control characters, and any program can choose a name.

use std::ffi::OsStr;
use std::fmt::{self, Display, Write};

/// The name, with control characters as escapes of Rust.
pub fn shown(name: &(impl AsRef<OsStr> + ?Sized)) -> impl Display {
    Shown(name.as_ref())
}

struct Shown<'a>(&'a OsStr);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.to_string_lossy().chars() {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_are_escaped() {
        assert_eq!(shown("/a b/ü.sst").to_string(), "/a b/ü.sst");
        assert_eq!(shown("\x1b[2J\nnext\u{9b}").to_string(), r"\u{1b}[2J\nnext\u{9b}");
    }
}
