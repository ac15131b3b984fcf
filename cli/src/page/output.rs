//! The files of a run, and no others: what is in the directory and was not written by an earlier run
//! stays as it is.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};

/// Lists the other files, one a line, so that the next run knows which are its to replace.
const LIST: &str = "files.txt";

/// A directory that files are written to.
#[derive(Debug)]
pub struct Output {
    dir: PathBuf,
    head: String,
}

impl Output {
    /// Takes a directory that is new, empty, or an earlier run's of the same command. Nothing is changed
    /// yet.
    ///
    /// # Errors
    /// [`Failure::Unfit`] for a directory with other files, [`Failure::File`] for one that cannot be
    /// made or listed.
    pub fn in_directory(dir: &Path, command: &str) -> Result<Self> {
        let head =
            format!("Written by {command}, which replaces these files when it is run again:");
        let output = Self { dir: dir.to_owned(), head };
        let names = match fs::read_dir(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(dir).map_err(|e| Failure::file("make the directory", dir, e))?;
                return Ok(output);
            }
            Err(e) if e.kind() == ErrorKind::NotADirectory => {
                return Err(Failure::unfit(dir, "a directory", "a file"));
            }
            names => names.map_err(|e| Failure::file("list", dir, e))?.count(),
        };
        if names > 0 && output.earlier()?.is_none() {
            let expected = "a new or empty directory, or one that an earlier run wrote";
            return Err(Failure::unfit(dir, expected, "other files"));
        }
        Ok(output)
    }

    /// The files of an earlier run, if there was one.
    fn earlier(&self) -> Result<Option<Vec<String>>> {
        let path = self.dir.join(LIST);
        let text = match fs::read_to_string(&path) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
                return Ok(None);
            }
            text => text.map_err(|e| Failure::file("read", &path, e))?,
        };
        let mut lines = text.lines();
        if lines.next() != Some(&self.head) {
            return Ok(None);
        }
        // A list that somebody wrote names nothing outside.
        let within = |name: &&str| Path::new(name).file_name() == Some(OsStr::new(name));
        Ok(Some(lines.filter(within).map(str::to_owned).collect()))
    }

    /// Puts these files in place of those of an earlier run.
    ///
    /// # Errors
    /// [`Failure::Unfit`], with nothing changed, if one of the names is taken by a file that no run
    /// wrote; [`Failure::File`].
    pub fn replace(&self, files: &[(String, Vec<u8>)]) -> Result<()> {
        let earlier = self.earlier()?;
        let earlier = earlier.iter().flatten().map(String::as_str);
        let mut old: Vec<&str> = earlier.collect();
        for (name, _) in files {
            let path = self.dir.join(name);
            if path.exists() && !old.contains(&name.as_str()) {
                return Err(Failure::unfit(&path, "no file, or an earlier run's", "another file"));
            }
        }
        old.push(LIST);
        for path in old.iter().map(|name| self.dir.join(name)) {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(Failure::file("remove", &path, e));
                }
                _ => {}
            }
        }
        // The list comes first: whatever happens then, the next run knows its files.
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        self.write(LIST, format!("{}\n{}\n", self.head, names.join("\n")).as_bytes())?;
        files.iter().try_for_each(|(name, bytes)| self.write(name, bytes))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.dir.join(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let mut file = file.map_err(|e| Failure::file("create", &path, e))?;
        file.write_all(bytes).map_err(|e| Failure::file("write", &path, e))
    }
}

/// Records as text, the head first.
pub(crate) fn csv<const N: usize>(
    head: [&str; N],
    records: impl IntoIterator<Item = [String; N]>,
) -> Vec<u8> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let write = || {
        table.write_record(head)?;
        records.into_iter().try_for_each(|record| table.write_record(record))
    };
    write().expect("a vector takes everything");
    table.into_inner().expect("a vector takes everything")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, name: &str) -> Result<()> {
        Output::in_directory(dir, "a test")?.replace(&[(name.to_owned(), b"new".to_vec())])
    }

    #[test]
    fn a_second_run_replaces_what_the_first_wrote_and_nothing_else() -> std::io::Result<()> {
        let parent = tempfile::tempdir()?;
        let dir = parent.path().join("a/b");
        write(&dir, "one").expect("a new directory");
        fs::write(dir.join("mine"), "kept")?;
        write(&dir, "two").expect("an earlier run's");
        assert!(!dir.join("one").exists() && dir.join("two").exists());
        assert_eq!(fs::read_to_string(dir.join("mine"))?, "kept");
        let refusal = write(&dir, "mine").expect_err("not its own");
        assert!(refusal.to_string().contains("another file"), "{refusal}");
        assert_eq!(fs::read_to_string(dir.join("mine"))?, "kept");
        Ok(())
    }

    #[test]
    fn a_list_that_names_other_places_is_not_obeyed() -> std::io::Result<()> {
        let parent = tempfile::tempdir()?;
        let dir = parent.path().join("out");
        fs::create_dir(&dir)?;
        fs::write(parent.path().join("mine"), "kept")?;
        fs::write(
            dir.join(LIST),
            "Written by a test, which replaces these files when it is run again:\n../mine\n",
        )?;
        write(&dir, "one").expect("an earlier run's");
        assert!(parent.path().join("mine").exists());
        Ok(())
    }

    #[test]
    fn a_directory_of_other_files_is_refused() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        fs::write(dir.path().join(LIST), "a list of somebody else's")?;
        assert!(Output::in_directory(dir.path(), "a test").is_err());
        Ok(())
    }
}
