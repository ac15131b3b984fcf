//! Skipped parts of tests.

use std::io::Write;

/// Prints that the test on this thread skips a part. The line passes the harness, which shows the output of
/// failed tests only; `.ci/run` counts these lines.
#[allow(dead_code, reason = "each test uses some of these modules")]
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {reason}\n", thread.name().unwrap_or("a test"));
    // At once: tests beside it write there, too.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
