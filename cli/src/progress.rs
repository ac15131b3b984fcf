//! The bar that long commands draw.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over bytes, on terminals only.
pub(crate) fn over_bytes(what: &'static str) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{msg:<28} {wide_bar} {binary_bytes} of {binary_total_bytes}";
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style).with_message(what)
}

/// Moves a bar to this state of the work.
pub(crate) fn at(bar: &ProgressBar, done: u64, left: u64) {
    bar.set_length(done + left);
    bar.set_position(done);
}
