//! The bar that long commands draw.

use std::fmt::Write;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::text::thousands;

const BYTES: &str =
    "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";

/// A bar over bytes, on terminals only.
pub(crate) fn over_bytes(what: &'static str) -> ProgressBar {
    on_terminal(what, BYTES)
}

/// A count of lines, on terminals only.
pub(crate) fn of_lines(what: &'static str) -> ProgressBar {
    on_terminal(what, "{msg} {human_pos} lines, {rate} a second")
}

fn on_terminal(what: &'static str, template: &str) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    ProgressBar::new(0).with_style(style(template)).with_message(what)
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
        let _ = out.write_str(&thousands(state.per_sec() as u64));
    })
}

/// Begins a bar anew, over so many bytes.
pub(crate) fn begin_bytes(bar: &ProgressBar, bytes: u64) {
    bar.set_style(style(BYTES));
    bar.set_length(bytes);
    bar.reset();
}

/// Shows how long work takes that has no measure.
pub(crate) fn wait(bar: &ProgressBar, what: &'static str) {
    bar.set_style(style("{msg} {elapsed}"));
    bar.set_message(what);
    bar.reset_elapsed();
    bar.enable_steady_tick(Duration::from_millis(200));
}

/// Moves a bar to this state of the work.
pub(crate) fn at(bar: &ProgressBar, done: u64, left: u64) {
    bar.set_length(done + left);
    bar.set_position(done);
}
