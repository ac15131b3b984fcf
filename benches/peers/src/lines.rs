//! Raw lines of JSON, one for each measurement: appended at once, so that an interrupted run can continue.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, load};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A measurement: a job of a program, and its findings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line<J, F> {
    pub job: J,
    pub findings: F,
    pub machine: Machine,
    /// Seconds since 1970.
    pub at: u64,
    /// The load average of the last minute, this program included.
    pub load: f64,
}

impl<J: Serialize, F: Serialize> Line<J, F> {
    /// A line of a measurement that has just ended.
    pub fn now(job: J, findings: F) -> Result<Self> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(Self { job, findings, machine: Machine::this(), at, load: load() })
    }

    /// Appends the line to a file, at once and whole.
    pub fn append(&self, path: &Path) -> Result<()> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut text = serde_json::to_string(self)?;
        text.push('\n');
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(file.write_all(text.as_bytes())?)
    }
}

/// All lines of a file. The last one may be incomplete.
#[allow(dead_code, reason = "some programs only append")]
pub fn read<J: DeserializeOwned, F: DeserializeOwned>(path: &Path) -> Result<Vec<Line<J, F>>> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let mut all = Vec::new();
    for (number, text) in (1..).zip(text.split_inclusive('\n')) {
        match serde_json::from_str(text) {
            Ok(line) => all.push(line),
            Err(_) if !text.ends_with('\n') => {}
            Err(error) => return Err(format!("{name}:{number}: {error}").into()),
        }
    }
    Ok(all)
}
