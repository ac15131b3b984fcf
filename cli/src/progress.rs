//! The bar that long commands draw.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over bytes, on terminals only.
pub(crate) fn over_bytes(what: &'static str) -> ProgressBar {
    on_terminal(what, "{msg:<28} {wide_bar} {binary_bytes} of {binary_total_bytes}")
}

/// A count of lines, on terminals only.
pub(crate) fn of_lines(what: &'static str) -> ProgressBar {
    on_terminal(what, "{msg:<28} {human_pos} lines")
}

fn on_terminal(what: &'static str, template: &str) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style).with_message(what)
}

/// Moves a bar to this state of the work.
pub(crate) fn at(bar: &ProgressBar, done: u64, left: u64) {
    bar.set_length(done + left);
    bar.set_position(done);
}
