//! The files of a run. Files that no earlier run wrote stay as they are.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Error, Result};

/// Lists the other files, one per line, for the next run to replace.
const LIST: &str = "files.txt";

/// A directory that files are written to.
#[derive(Debug)]
pub struct Output {
    dir: PathBuf,
    head: String,
}

impl Output {
    /// Takes a directory that is new, empty, or from an earlier run of the same command, and creates it if
    /// needed. Changes no file.
    ///
    /// # Errors
    /// [`Error::Unfit`] for a directory with other files, [`Error::File`] for one that cannot be created
    /// or listed.
    pub fn in_directory(dir: &Path, command: &str) -> Result<Self> {
        let head =
            format!("Written by {command}, which replaces these files when it is run again:");
        let output = Self { dir: dir.to_owned(), head };
        let names = match fs::read_dir(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(dir).map_err(|e| Error::file("make the directory", dir, e))?;
                return Ok(output);
            }
            Err(e) if e.kind() == ErrorKind::NotADirectory => {
                return Err(Error::unfit(dir, "a directory", "a file"));
            }
            names => names.map_err(|e| Error::file("list", dir, e))?.count(),
        };
        if names > 0 && output.earlier()?.is_none() {
            let expected =
                "a new or empty directory, or one that an earlier run of this command wrote";
            return Err(Error::unfit(dir, expected, "other files"));
        }
        output.stage()?; // what cannot be written to is better known before half an hour's work
        Ok(output)
    }

    fn earlier(&self) -> Result<Option<Vec<String>>> {
        let path = self.dir.join(LIST);
        let text = match fs::read_to_string(&path) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
                return Ok(None);
            }
            text => text.map_err(|e| Error::file("read", &path, e))?,
        };
        let mut lines = text.lines();
        if lines.next() != Some(&self.head) {
            return Ok(None);
        }
        // A forged list must not name files outside.
        let within = |name: &&str| Path::new(name).file_name() == Some(OsStr::new(name));
        Ok(Some(lines.filter(within).map(str::to_owned).collect()))
    }

    /// Replaces the files of an earlier run. All are written to a temporary directory first: a full disk
    /// leaves the old ones as they were.
    ///
    /// # Errors
    /// [`Error::Unfit`], with nothing changed, if another file has one of the names; [`Error::File`].
    pub fn replace(&self, files: &[(String, Vec<u8>)]) -> Result<()> {
        let earlier = self.earlier()?.unwrap_or_default();
        for (name, _) in files {
            let path = self.dir.join(name);
            if path.exists() && !earlier.contains(name) {
                return Err(Error::unfit(&path, "no file, or an earlier run's", "another file"));
            }
        }
        let stage = self.stage()?;
        for (name, bytes) in files {
            write(&stage.path().join(name), bytes)?;
        }
        // Whatever happens between, the next run knows all that may be there.
        let new: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let old = || earlier.iter().map(String::as_str).filter(|name| !new.contains(name));
        self.put_list(&stage, new.iter().copied().chain(old()))?;
        for name in &new {
            self.put(&stage, name)?;
        }
        for path in old().map(|name| self.dir.join(name)) {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    return Err(Error::file("remove", &path, e));
                }
                _ => {}
            }
        }
        self.put_list(&stage, new.iter().copied())
    }

    /// A temporary directory for new files.
    fn stage(&self) -> Result<TempDir> {
        let stage = tempfile::Builder::new().prefix(".new-").tempdir_in(&self.dir);
        stage.map_err(|e| Error::file("write into", &self.dir, e))
    }

    fn put(&self, stage: &TempDir, name: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::rename(stage.path().join(name), &path).map_err(|e| Error::file("replace", &path, e))
    }

    fn put_list<'a>(&self, stage: &TempDir, names: impl Iterator<Item = &'a str>) -> Result<()> {
        let names: Vec<_> = names.collect();
        let list = format!("{}\n{}\n", self.head, names.join("\n"));
        write(&stage.path().join(LIST), list.as_bytes())?;
        self.put(stage, LIST)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|e| Error::file("write", path, e))
}

/// Records as text, the head first.
#[expect(clippy::missing_panics_doc, reason = "a vector takes everything")]
pub fn csv<const N: usize>(
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

    fn run(dir: &Path, name: &str) -> Result<()> {
        Output::in_directory(dir, "a test")?.replace(&[(name.to_owned(), b"new".to_vec())])
    }

    #[test]
    fn a_second_run_replaces_what_the_first_wrote_and_nothing_else() -> std::io::Result<()> {
        let parent = tempfile::tempdir()?;
        let dir = parent.path().join("a/b");
        run(&dir, "one").expect("a new directory");
        fs::write(dir.join("mine"), "kept")?;
        run(&dir, "two").expect("an earlier run's");
        assert!(!dir.join("one").exists() && dir.join("two").exists());
        assert_eq!(fs::read_to_string(dir.join("mine"))?, "kept");
        let refusal = run(&dir, "mine").expect_err("not its own");
        assert!(refusal.to_string().contains("another file"), "{refusal}");
        assert_eq!(fs::read_to_string(dir.join("mine"))?, "kept");
        Ok(())
    }

    #[test]
    fn what_cannot_be_written_leaves_the_earlier_run_as_it_was() -> std::io::Result<()> {
        let parent = tempfile::tempdir()?;
        let dir = parent.path().join("out");
        run(&dir, "one").expect("a new directory");
        let list = fs::read(dir.join(LIST))?;
        let files = [("two".to_owned(), vec![]), ("no/such/place".to_owned(), vec![])];
        let output = Output::in_directory(&dir, "a test").expect("an earlier run's");
        assert!(output.replace(&files).is_err());
        assert_eq!(fs::read(dir.join(LIST))?, list);
        assert_eq!(fs::read_dir(&dir)?.count(), 2, "the list and the file of the earlier run");
        assert!(dir.join("one").exists());
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
        run(&dir, "one").expect("an earlier run's");
        assert!(parent.path().join("mine").exists());
        Ok(())
    }

    #[test]
    fn a_directory_of_other_files_is_refused() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        fs::write(dir.path().join(LIST), "a list of another program")?;
        assert!(Output::in_directory(dir.path(), "a test").is_err());
        Ok(())
    }
}
