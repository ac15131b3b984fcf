//! The order of measurements, and the child's part of one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::job::{Job, Workload};
use crate::keys::{KeyKind, Keys};
use crate::loaded::Place;
use crate::machine::Machine;
use crate::results::{Findings, Line, Order, Results, Task};
use crate::settings::Setting;
use crate::stores::{Name, Store, Visitor};
use crate::workloads::{ACCOUNTS, Bench};
use crate::{Result, Run};

/// All measurements: all stores of a workload before the next workload, and everything once before anything
/// twice, so that other load affects all.
fn jobs(run: &Run) -> Vec<Job> {
    let mut jobs = Vec::new();
    let arms: Vec<(Name, Setting, String)> = run
        .stores
        .iter()
        .filter(|store| store.is_here())
        .flat_map(|store| store.settings().iter().map(|&setting| (*store, setting)))
        .filter(|(store, setting)| store.settings().len() == 1 || run.settings.contains(setting))
        .map(|(store, setting)| (store, setting, store.version()))
        .collect();
    for repetition in 1..=run.repetitions {
        for &workload in &run.workloads {
            for (store, setting, version) in &arms {
                jobs.push(Job {
                    store: *store,
                    setting: *setting,
                    version: version.clone(),
                    workload,
                    repetition,
                    n: match workload {
                        Workload::W11 | Workload::W11c => ACCOUNTS,
                        _ => run.n,
                    },
                    keys: run.keys,
                    seed: run.seed,
                    lookups: run.lookups,
                    seconds: match workload {
                        Workload::W10 => run.mixed_seconds,
                        _ => run.seconds,
                    },
                });
            }
        }
    }
    jobs
}

/// Makes every missing measurement.
pub fn run(run: &Run) -> Result<()> {
    if run.n == 0 || run.lookups == 0 {
        return Err("there must be keys and lookups".into());
    }
    let dir = run.dir.clone().unwrap_or_else(default_dir);
    std::fs::create_dir_all(&dir)?;
    println!("{}", Machine::this());
    let mut results = Results::open(&run.out)?;
    let jobs = jobs(run);
    let mut errors = 0;
    for (at, job) in jobs.iter().enumerate() {
        if results.has(job) {
            continue;
        }
        let order = |task| Order {
            job: job.clone(),
            dir: dir.clone(),
            paths: if run.paths.is_empty() { samples() } else { run.paths.clone() },
            task,
        };
        let limit = Duration::from_secs(run.limit);
        let prepared = spawn(&order(Task::Prepare), limit);
        let findings =
            if prepared.error.is_some() { prepared } else { spawn(&order(Task::Measure), limit) };
        errors += u32::from(findings.error.is_some());
        print_progress(at + 1, jobs.len(), job, &findings);
        results.append(&Line::now(job.clone(), findings)?)?;
    }
    if errors > 0 {
        return Err(format!("{errors} of {} measurements went wrong", jobs.len()).into());
    }
    Ok(())
}

fn name_of(job: &Job) -> String {
    match (job.store.settings().len(), job.setting) {
        (1, _) => job.store.to_string(),
        (_, Setting::Alike) => format!("{}, alike", job.store),
        (_, Setting::Best) => format!("{}, best", job.store),
    }
}

fn print_progress(at: usize, of: usize, job: &Job, findings: &Findings) {
    let name = name_of(job);
    print!("{at}/{of} {} {name}, {}:", job.workload, job.repetition);
    if let Some(error) = &findings.error {
        println!(" ERROR: {error}");
        return;
    }
    if let Some(why) = &findings.left_out {
        println!(" left out: {why}");
        return;
    }
    for (name, value) in &findings.figures {
        print!(" {name} {value:.5}");
    }
    let known = |value: Option<u64>| value.map_or("unknown".to_owned(), |value| value.to_string());
    println!("; runs {}, filter bytes {}", known(findings.runs), known(findings.filter_bytes));
    if job.repetition == 1 {
        println!("    set: {}", findings.settings);
    }
}

/// Runs this program for one measurement. A store without progress must not stop the others.
fn spawn(order: &Order, limit: Duration) -> Findings {
    let failed = |error: String| Findings { error: Some(error), ..Findings::default() };
    let text = match serde_json::to_string(order) {
        Ok(text) => text,
        Err(error) => return failed(error.to_string()),
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return failed(error.to_string()),
    };
    let child = Command::new(program).arg("child").arg(text).stdout(Stdio::piped()).spawn();
    let done = child.and_then(|mut child| {
        let start = Instant::now();
        // What a child prints is less than a pipe holds, so it need not be read meanwhile.
        while child.try_wait()?.is_none() {
            if start.elapsed() >= limit {
                child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        child.wait_with_output()
    });
    let done = match done {
        Ok(done) if done.status.success() => done,
        Ok(done) => return failed(format!("the measuring process ended with {}", done.status)),
        Err(error) => return failed(error.to_string()),
    };
    // A store may print something of its own; the last line is ours.
    let text = String::from_utf8_lossy(&done.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| failed(format!("{error} in {last:?}")))
}

/// The measuring process: runs its job and prints the result as its last line.
pub fn child(order: &str) -> Result<()> {
    let order: Order = serde_json::from_str(order)?;
    let job = &order.job;
    let keys = match job.keys {
        KeyKind::Names => Keys::names(job.n, job.seed),
        KeyKind::Paths => Keys::paths(job.n, job.seed, &order.paths)?,
    };
    let place = Place { dir: &order.dir, job };
    let bench = Bench::new(job, &keys, place);
    let findings = job.store.visit(Measure { bench, task: order.task });
    println!("{}", serde_json::to_string(&findings)?);
    Ok(())
}

struct Measure<'a> {
    bench: Bench<'a>,
    task: Task,
}

impl Visitor for Measure<'_> {
    type Output = Findings;

    fn visit<S: Store>(mut self) -> Findings {
        let done = match self.task {
            Task::Prepare => self.bench.prepare::<S>(),
            Task::Measure => self.bench.run::<S>(),
        };
        if let Err(error) = done {
            self.bench.findings.error = Some(error.to_string());
        }
        self.bench.findings
    }
}

/// The samples of paths that come with criba.
fn samples() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    vec![data.join("paths-present.tsv.gz"), data.join("paths-absent.txt.gz")]
}

/// Beside the program: `target`, unless cargo has another setting.
fn default_dir() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program
        .parent()
        .and_then(Path::parent)
        .map_or_else(|| PathBuf::from("stores"), |it| it.join("stores"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn stores_take_turns_and_everything_is_done_once_before_anything_twice() {
        let command = "peers --stores criba,fjall,lmdb --workloads w2,w10 --repetitions 2 --n 500";
        let run = crate::Command::parse_from(command.split(' ')).run;
        let jobs = jobs(&run);
        let order: Vec<_> = jobs
            .iter()
            .map(|job| format!("{} {} {}", job.repetition, job.workload, name_of(job)))
            .collect();
        let stores = ["criba", "fjall, alike", "fjall, best", "lmdb"];
        let mut expected = Vec::new();
        for repetition in 1..=2 {
            for workload in ["w2", "w10"] {
                expected.extend(stores.map(|store| format!("{repetition} {workload} {store}")));
            }
        }
        assert_eq!(order, expected);
        assert!(jobs.iter().all(|job| job.n == 500));
        assert!(jobs.iter().all(|job| (job.workload == Workload::W10) == (job.seconds > 5.0)));
    }

    #[test]
    fn settings_can_be_chosen() {
        let run =
            crate::Command::parse_from("peers --stores fjall,lsm-db --settings best".split(' '))
                .run;
        let jobs = jobs(&run);
        assert!(jobs.iter().all(|job| job.store == Name::LsmDb || job.setting == Setting::Best));
        assert!(jobs.iter().any(|job| job.store == Name::LsmDb), "it has one setting only");
    }
}
