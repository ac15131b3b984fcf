//! Skipped parts of tests.

use std::io::Write;

/// Prints that the test on this thread skips a part. The line passes the harness, which shows the output of
/// failed tests only; `.ci/run` counts these lines.
#[allow(dead_code, reason = "each test uses some of these modules")]
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}
