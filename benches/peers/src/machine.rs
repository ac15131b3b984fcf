//! The machine and the versions of a measurement.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::process::Command;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_gib: u64,
    pub kernel: String,
}

impl Machine {
    pub fn this() -> Self {
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
        };
        let kib = field("/proc/meminfo", "MemTotal");
        let kib: u64 = kib.trim_end_matches(" kB").parse().unwrap_or(0);
        let kernel = rustix::system::uname();
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: (kib + (1 << 19)) >> 20,
            kernel: format!(
                "{} {}",
                kernel.sysname().to_string_lossy(),
                kernel.release().to_string_lossy()
            ),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cpu, cores, memory_gib, kernel } = self;
        write!(f, "{cpu}, {cores} cores, {memory_gib} GiB of memory, {kernel}")
    }
}

/// The load average of the last minute.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// criba's commit, and a hash of uncommitted changes: figures of an older state do not prevent a new
/// measurement.
#[allow(dead_code, reason = "some programs measure more than the store")]
pub fn criba_version() -> String {
    // The engine's own sources only: the bench is worked on, too.
    version_of(&["src", "Cargo.toml", "Cargo.lock"])
}

/// The commit of these sources, and a hash of uncommitted changes.
pub fn version_of(sources: &[&str]) -> String {
    let git = |arguments: &[&str]| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let done = Command::new("git").args(["-C", root]).args(arguments).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let sources = [&["--"], sources].concat();
    let commit = git(&[&["log", "-1", "--format=%h"], &sources[..]].concat());
    let changes = git(&[&["diff", "HEAD"], &sources[..]].concat()).unwrap_or_default();
    let mut version = commit.unwrap_or_else(|| "unknown".to_owned());
    if !changes.is_empty() {
        let mut hasher = DefaultHasher::new();
        changes.hash(&mut hasher);
        version = format!("{version}+{:04x}", hasher.finish() & 0xFFFF);
    }
    version
}
