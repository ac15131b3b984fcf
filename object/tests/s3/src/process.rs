//! Child processes, which report events to their parent, and do not outlive it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Error, Lines, Result, Write, stdin};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A child process. It is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
    /// By event, the numbers of its last report.
    last: HashMap<String, Vec<u64>>,
}

impl Process {
    /// Starts a process that calls [`end_with_the_parent`] and [`report`].
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or_else(|| Error::other("no pipe"))?;
        Ok(Self { child, output: BufReader::new(output).lines(), last: HashMap::new() })
    }

    /// Waits for a report of this event whose first number is at least `least`. Returns its numbers.
    ///
    /// # Errors
    /// The process ended before.
    pub fn until(&mut self, event: &str, least: u64) -> Result<&[u64]> {
        while self.last(event).first().is_none_or(|&number| number < least) {
            let ended = || Error::other(format!("a child ended before \"{event} {least}\""));
            let line = self.output.next().ok_or_else(ended)??;
            let mut words = line.split_whitespace();
            let event = words.next().unwrap_or_default().to_owned();
            let numbers = words.map(|word| word.parse().map_err(Error::other));
            self.last.insert(event, numbers.collect::<Result<_>>()?);
        }
        Ok(self.last(event))
    }

    fn read_to_end(&mut self) {
        // It fails at the end.
        let _ = self.until("no such event", 0);
    }

    /// The numbers of the last report of an event; none if there was none.
    pub fn last(&self, event: &str) -> &[u64] {
        self.last.get(event).map_or(&[], Vec::as_slice)
    }

    /// Kills the process, and reads what it reported until then.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.read_to_end();
        Ok(())
    }

    /// Lets the process finish its work.
    ///
    /// # Errors
    /// It failed.
    pub fn finish(&mut self) -> Result<()> {
        // A wait closes the standard input, which ends the process at once.
        let mut input = self.child.stdin.take().ok_or_else(|| Error::other("finished before"))?;
        input.write_all(b"\n")?;
        self.read_to_end();
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(Error::other(format!("a child: {status}"))) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Reports an event to the parent, in a line of the standard output.
pub fn report(event: &str, numbers: &[u64]) {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    println!("{event} {}", numbers.join(" "));
}

/// Ends this process with its parent, whose pipe is the standard input. True when the parent lets it finish.
pub fn end_with_the_parent() -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let of_thread = Arc::clone(&is_over);
    std::thread::spawn(move || {
        for _ in stdin().lines().map_while(Result::ok) {
            of_thread.store(true, Ordering::SeqCst);
        }
        std::process::exit(1);
    });
    is_over
}
