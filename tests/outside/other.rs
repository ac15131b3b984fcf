//! The second process. It does what it is asked to do, one line for each request.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use criba::{Db, Durability, Error};

use crate::script::{options, other_key};

const CHILD: &str = "CRIBA_TEST_OUTSIDE_OTHER";
const MARK: &str = "= ";

/// Not a test: the second process.
#[test]
#[ignore = "run by the matrix"]
fn another_process() {
    assert!(std::env::var_os(CHILD).is_some(), "run by the matrix");
    let mut db: Option<Db> = None;
    let mut written = 0;
    // Ends the line of the harness.
    println!();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (command, argument) = line.split_once(' ').unwrap();
        let answer = match command {
            "open" | "make" => {
                let options = options(0).create_if_missing(command == "make");
                match options.open(argument) {
                    Ok(opened) => {
                        (db, written) = (Some(opened), 0);
                        "opened".to_owned()
                    }
                    Err(Error::Locked { .. }) => "locked".to_owned(),
                    Err(error) => format!("error {error}"),
                }
            }
            "put" => match put(db.as_ref().expect("it is open"), written) {
                Ok(()) => {
                    written += 1;
                    let db = db.as_ref().expect("it is open");
                    // It makes and removes files.
                    let flushed = if written % 4 == 0 { db.flush() } else { Ok(()) };
                    flushed.map_or_else(|error| format!("put, but {error}"), |()| "put".to_owned())
                }
                Err(error) => format!("error {error}"),
            },
            // Errors are the result of its puts.
            "close" => {
                db.take().map_or(Ok(()), Db::close).map_or("error", |()| "closed").to_owned()
            }
            other => panic!("{other}"),
        };
        std::io::stdout().lock().write_all(format!("{MARK}{answer}\n").as_bytes()).unwrap();
    }
}

fn put(db: &Db, number: u64) -> criba::Result<()> {
    db.put_with(other_key(number), [b'o'; 100], Durability::Synced)
}

/// The second process, and what it said.
#[derive(Debug)]
pub(crate) struct Other {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    is_open: bool,
    /// The acknowledged puts since the last opening.
    pub(crate) acknowledged: u64,
    /// The first error since the last opening.
    pub(crate) error: Option<String>,
}

impl Other {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "other::another_process", "--ignored", "--nocapture"])
            .env(CHILD, "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let requests = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, requests, answers, is_open: false, acknowledged: 0, error: None }
    }

    fn ask(&mut self, command: &str, argument: &str) -> String {
        self.requests.write_all(format!("{command} {argument}\n").as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line).unwrap() == 0 {
                // It panicked.
                *self = Self::start();
                return "error the second process panicked".to_owned();
            }
            if let Some(answer) = line.strip_prefix(MARK) {
                return answer.trim_end().to_owned();
            }
        }
    }

    /// Opens the store of a directory, or makes one there.
    pub(crate) fn open(&mut self, dir: &Path, make: bool) -> String {
        let answer = self.ask(if make { "make" } else { "open" }, dir.to_str().unwrap());
        (self.acknowledged, self.error) = (0, None);
        self.is_open = answer == "opened";
        answer
    }

    /// Puts, if the store is open and no put failed.
    pub(crate) fn put(&mut self) {
        if !self.is_open || self.error.is_some() {
            return;
        }
        let answer = self.ask("put", "");
        self.acknowledged += u64::from(answer.starts_with("put"));
        if answer != "put" {
            self.error = Some(answer);
        }
    }

    pub(crate) fn close(&mut self) {
        if self.is_open {
            self.ask("close", "");
            self.is_open = false;
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
