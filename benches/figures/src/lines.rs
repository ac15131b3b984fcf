//! Raw lines, as the programs of `benches/peers` and `benches/object` append them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// A measurement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Line {
    pub(crate) job: Job,
    pub(crate) findings: Findings,
    pub(crate) machine: Machine,
    /// Seconds since 1970.
    pub(crate) at: u64,
    /// The load average of the last minute, the measuring program included.
    pub(crate) load: f64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Job {
    pub(crate) store: String,
    /// `alike` or `best`; others of some programs.
    #[serde(default)]
    pub(crate) setting: String,
    pub(crate) version: String,
    pub(crate) workload: String,
    pub(crate) n: u64,
    /// What keys look like.
    #[serde(default = "names")]
    pub(crate) keys: String,
    #[serde(default)]
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) lookups: u64,
    /// Of compression: what rows look like.
    #[serde(default)]
    pub(crate) rows: String,
    #[serde(default)]
    pub(crate) block_bytes: u64,
}

fn names() -> String {
    "names".to_owned()
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(crate) struct Findings {
    /// By name.
    pub(crate) figures: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) runs: Option<u64>,
    #[serde(default)]
    pub(crate) filter_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) settings: Vec<(String, String)>,
    /// Why the store cannot do this.
    #[serde(default)]
    pub(crate) left_out: Option<String>,
    #[serde(default)]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
}

/// All lines of a file. A last line without its end is left out.
///
/// # Errors
/// The file cannot be read, or another line is none; the text names the line.
pub fn read(path: &Path) -> Result<Vec<Line>, String> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let mut lines = Vec::new();
    for (number, text) in (1..).zip(text.split_inclusive('\n')) {
        match serde_json::from_str(text) {
            Ok(line) => lines.push(line),
            Err(_) if !text.ends_with('\n') => {}
            Err(error) => return Err(format!("{name}:{number}: {error}")),
        }
    }
    Ok(lines)
}

/// Repetitions of a measurement, of the newest version of its store.
pub(crate) fn newest<'l>(lines: impl IntoIterator<Item = &'l Line>) -> Vec<&'l Line> {
    let mut lines: Vec<_> = lines.into_iter().collect();
    let last = lines.iter().max_by_key(|line| line.at).map(|line| line.job.clone());
    lines.retain(|Line { job, .. }| {
        last.as_ref().is_some_and(|last| {
            (&job.version, job.lookups, job.seed) == (&last.version, last.lookups, last.seed)
        })
    });
    lines
}

/// The median of a figure, its least and its greatest value.
pub(crate) fn median(lines: &[&Line], figure: &str) -> Option<[f64; 3]> {
    let values = lines.iter().filter_map(|line| line.findings.figures.get(figure).copied());
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (least, greatest) = (*values.first()?, *values.last()?);
    let at = values.len() / 2;
    let middle =
        if values.len() % 2 == 1 { values[at] } else { f64::midpoint(values[at - 1], values[at]) };
    Some([middle, least, greatest])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn line(
        store: &str,
        setting: &str,
        workload: &str,
        figures: &[(&str, f64)],
    ) -> Line {
        Line {
            job: Job {
                store: store.to_owned(),
                setting: setting.to_owned(),
                version: "1.0".to_owned(),
                workload: workload.to_owned(),
                n: 1000,
                keys: names(),
                seed: 1,
                lookups: 10,
                rows: String::new(),
                block_bytes: 0,
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
    fn only_a_last_line_may_be_cut_short() {
        let path = std::env::temp_dir().join(format!("criba-figures-{}", std::process::id()));
        let whole = r#"{"job":{"store":"a","version":"1","workload":"w1","n":1},"findings":{"figures":{"ns":2.5}},"machine":{"cpu":"c","cores":2,"memory_gib":1,"kernel":"k"},"at":1,"load":0.5}"#;
        let read_text = |text: String| {
            fs::write(&path, text).expect("a file for a moment");
            let lines = read(&path);
            fs::remove_file(&path).expect("it was written");
            lines
        };
        let lines = read_text(format!("{whole}\n{}", &whole[..40])).expect("one whole line");
        assert_eq!(lines.len(), 1);
        assert_eq!(median(&[&lines[0]], "ns"), Some([2.5; 3]));
        assert_eq!(lines[0].job.keys, "names");
        let error = read_text(format!("{}\n{whole}\n", &whole[..40])).expect_err("no line");
        assert!(error.contains(":1: "), "{error}");
    }
}
