//! The lines that `criba load --skip-bad` leaves out.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::lines::Line;
use crate::print_error;

/// Of so many lines the reason is printed.
const SHOWN: u64 = 10;

pub(super) struct Rejects {
    /// Gets each line as it is, but for those that were cut.
    file: Option<(PathBuf, BufWriter<File>)>,
    pub(super) count: u64,
}

impl Rejects {
    /// Makes the file, which must not exist.
    pub(super) fn new(path: Option<&Path>) -> Result<Self> {
        let file = match path {
            None => None,
            Some(path) => {
                let file = OpenOptions::new().write(true).create_new(true).open(path);
                let file = file.map_err(|source| Failure::file("make it", path, source))?;
                Some((path.to_owned(), BufWriter::new(file)))
            }
        };
        Ok(Self { file, count: 0 })
    }

    pub(super) fn add(&mut self, line: &Line<'_>, failure: &Failure) -> Result<()> {
        self.count += 1;
        if self.count <= SHOWN {
            print_error(&failure.to_string());
        }
        if let Some((path, file)) = self.file.as_mut().filter(|_| !line.is_cut()) {
            let written = file.write_all(line.bytes).and_then(|()| file.write_all(b"\n"));
            written.map_err(|source| Failure::file("write to it", path, source))?;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        file.flush().map_err(|source| Failure::file("write to it", path, source))
    }
}
