//! Paths and messages in a terminal, which obeys control characters, and in commands to copy from it.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A text of one line, with control characters as escapes of Rust: a terminal obeys them.
pub(crate) fn visible(text: &str) -> String {
    let escape = |character: char| -> String {
        if character.is_control() { character.escape_default().collect() } else { character.into() }
    };
    text.chars().map(escape).collect()
}

/// A path as a word of a shell command, without a slash at its end.
pub(crate) fn quoted(path: &Path) -> String {
    let path: PathBuf = path.components().collect();
    let mut word = visible(&path.to_string_lossy());
    if word.starts_with('-') {
        word.insert_str(0, "./");
    }
    shlex::try_quote(&word).map_or(word.clone(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        let words = ["a/b", "a b/", "it's", "-st", ".", "a\nb"].map(|path| quoted(Path::new(path)));
        assert_eq!(words, ["a/b", "'a b'", "\"it's\"", "./-st", ".", r#""a\\nb""#]);
    }
}
