//! A terminal for a command to draw on.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::thread::{self, JoinHandle};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A terminal; the thread ends with what was drawn on it.
pub(crate) fn terminal() -> (File, JoinHandle<String>) {
    let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&control).and_then(|()| unlockpt(&control)).expect("a terminal");
    let name = ptsname(&control, Vec::new()).expect("its name").into_string().expect("text");
    let screen = OpenOptions::new().read(true).write(true).open(name).expect("the other end");
    let drawn = thread::spawn(move || {
        let mut drawn = Vec::new();
        // When the last process has closed a terminal, reading fails.
        let _ = File::from(control).read_to_end(&mut drawn);
        String::from_utf8_lossy(&drawn).into_owned()
    });
    (screen, drawn)
}
