//! The results of jobs.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::job::Job;
use crate::lines::{self, read};
use crate::settings::Told;

/// The input of a child process: the job, and settings that do not affect the measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    pub job: Job,
    /// Stores are made here.
    pub dir: PathBuf,
    /// Where paths are taken from.
    pub paths: Vec<PathBuf>,
    /// What is to be done.
    pub task: Task,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Load the store of the workload, if there is none.
    Prepare,
    Measure,
}

/// What a child found.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// By name; `benches/figures` has the names in words.
    pub figures: BTreeMap<String, f64>,
    /// L0 tables, and levels with tables.
    pub runs: Option<u64>,
    pub l0_tables: Option<u64>,
    pub filter_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub settings: Told,
    /// Why the store cannot do this.
    #[serde(default)]
    pub left_out: Option<String>,
    /// The error, such as a wrong answer.
    #[serde(default)]
    pub error: Option<String>,
}

impl Findings {
    /// Adds a figure that is a number.
    pub fn figure(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.figures.insert(name.to_owned(), value);
        }
    }
}

/// A line of a file of results.
pub type Line = lines::Line<Job, Findings>;

/// A file of results.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    done: HashSet<String>,
}

impl Results {
    /// Opens or creates the file. Failed measurements are repeated.
    pub fn open(path: &Path) -> Result<Self> {
        let lines: Vec<Line> = if path.exists() { read(path)? } else { Vec::new() };
        let done = lines.iter().filter(|line| line.findings.error.is_none());
        Ok(Self { path: path.to_owned(), done: done.map(|line| line.job.id()).collect() })
    }

    pub fn has(&self, job: &Job) -> bool {
        self.done.contains(&job.id())
    }

    pub fn append(&mut self, line: &Line) -> Result<()> {
        line.append(&self.path)?;
        self.done.insert(line.job.id());
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use std::fs;

    use super::*;
    use crate::job::Workload;
    use crate::keys::KeyKind;
    use crate::machine::Machine;
    use crate::settings::Setting;
    use crate::stores::Name;

    pub fn line(
        store: Name,
        setting: Setting,
        workload: Workload,
        figures: &[(&str, f64)],
    ) -> Line {
        Line {
            job: Job {
                store,
                setting,
                version: "1.0".to_owned(),
                workload,
                repetition: 1,
                n: 1000,
                keys: KeyKind::Names,
                seed: 1,
                lookups: 10,
                seconds: 0.5,
            },
            findings: Findings {
                figures: figures.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
                ..Findings::default()
            },
            machine: Machine {
                cpu: "a processor".to_owned(),
                cores: 2,
                memory_gib: 24,
                kernel: "Linux 6.1".to_owned(),
            },
            at: 0,
            load: 1.0,
        }
    }

    #[test]
    fn what_is_there_is_not_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results/some.jsonl");
        let done = line(Name::Criba, Setting::Alike, Workload::W2, &[("absent_ns", 1.5)]);
        let mut failed = line(Name::RocksDb, Setting::Best, Workload::W3, &[]);
        failed.findings.error = Some("no room".to_owned());

        let mut results = Results::open(&path).unwrap();
        assert!(!results.has(&done.job));
        results.append(&done).unwrap();
        results.append(&failed).unwrap();
        assert!(results.has(&done.job));

        let results = Results::open(&path).unwrap();
        assert!(results.has(&done.job));
        assert!(!results.has(&failed.job), "an error is no result");
        for change in [
            |job: &mut Job| job.repetition = 2,
            |job: &mut Job| job.version = "1.1".to_owned(),
            |job: &mut Job| job.lookups = 11,
            |job: &mut Job| job.keys = KeyKind::Paths,
        ] {
            let mut other = done.job.clone();
            change(&mut other);
            assert!(!results.has(&other), "{other:?}");
        }
        assert_eq!(read::<Job, Findings>(&path).unwrap(), [done, failed]);
    }

    #[test]
    fn a_last_line_cut_short_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.jsonl");
        let whole =
            serde_json::to_string(&line(Name::Fjall, Setting::Alike, Workload::W1, &[])).unwrap();
        fs::write(&path, format!("{whole}\n{}", &whole[..40])).unwrap();
        assert_eq!(read::<Job, Findings>(&path).unwrap().len(), 1);
        fs::write(&path, format!("{}\n{whole}\n", &whole[..40])).unwrap();
        assert!(read::<Job, Findings>(&path).unwrap_err().to_string().contains("some.jsonl:1: "));
    }
}
