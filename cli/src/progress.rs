//! What long commands report on standard error: a bar on a terminal, or lines of JSON.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::io::{self, IsTerminal, stderr};
use std::ops::Deref;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike};
use serde_json::json;

use crate::text::thousands;

const BYTES: &str =
    "{msg} {wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
const COUNT: &str = "{prefix}{msg:<19} {wide_bar} {human_pos} of {human_len}, {eta} left";
const LINES: &str = "{msg} {human_pos} lines, {rate} a second";
const TIME: &str = "{msg} {elapsed}";
const JSON: &str = "{json}";
/// How often `watch` looks.
const INTERVAL: Duration = Duration::from_millis(200);
/// Between two lines of JSON.
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct ProgressArgs {
    /// Report on standard error how far the work is: a bar, on a terminal only, or a JSON object at the start and each second
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    progress: How,
    /// Report nothing meanwhile
    #[arg(long, short, conflicts_with = "progress")]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum How {
    /// A bar on a terminal, else nothing
    #[default]
    Auto,
    /// Lines of JSON
    Json,
}

/// A bar or its substitute. Clones are the same bar.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: ProgressBar,
    is_json: bool,
}

impl Deref for Progress {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.bar
    }
}

impl Progress {
    /// Reports nothing.
    #[must_use]
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), is_json: false }
    }

    /// The time, on a terminal.
    #[must_use]
    pub fn of_time() -> Self {
        Self::new(ProgressArgs::default(), "", TIME)
    }

    /// A bar over bytes.
    pub(crate) fn over_bytes(args: ProgressArgs, what: &'static str) -> Self {
        Self::new(args, what, BYTES)
    }

    /// A bar over a number of keys.
    pub(crate) fn over_count(args: ProgressArgs, what: &'static str) -> Self {
        Self::new(args, what, COUNT)
    }

    /// A count of lines, without an end.
    pub(crate) fn of_lines(args: ProgressArgs, what: &'static str) -> Self {
        Self::new(args, what, LINES)
    }

    fn new(args: ProgressArgs, what: &'static str, template: &str) -> Self {
        let is_json = args.progress == How::Json;
        if args.quiet || !(is_json || stderr().is_terminal()) {
            return Self::hidden();
        }
        // Drawn once it has its form.
        let bar =
            ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what);
        let this = Self { bar, is_json };
        this.set_template(template);
        this.bar.set_draw_target(if is_json {
            ProgressDrawTarget::term_like_with_hz(Box::<JsonLines>::default(), 5)
        } else {
            ProgressDrawTarget::stderr()
        });
        this
    }

    fn set_template(&self, template: &str) {
        let template = if self.is_json { JSON } else { template };
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let style = style.with_key("rate", |state: &ProgressState, out: &mut dyn Write| {
            let _ = out.write_str(&thousands(state.per_sec() as u64));
        });
        let message = self.bar.message();
        self.bar.set_style(style.with_key(
            "json",
            move |state: &ProgressState, out: &mut dyn Write| {
                let _ = write_json(&message, state, out);
            },
        ));
    }

    /// Says what is done now.
    pub(crate) fn begin(&self, what: impl Into<Cow<'static, str>>) {
        self.bar.set_message(what);
        if self.is_json {
            self.set_template(JSON);
        }
    }

    /// Begins anew, over so many bytes.
    pub(crate) fn begin_bytes(&self, bytes: u64) {
        self.set_template(BYTES);
        self.bar.set_length(bytes);
        self.bar.reset();
    }

    /// Shows how long work takes that has no measure.
    pub fn wait(&self, what: impl Into<Cow<'static, str>>) {
        self.begin(what);
        self.set_template(TIME);
        self.bar.reset_elapsed();
        self.bar.enable_steady_tick(INTERVAL);
    }

    /// Moves to this state of the work.
    pub(crate) fn at(&self, done: u64, left: u64) {
        self.bar.set_length(done + left);
        self.bar.set_position(done);
    }

    /// Runs work on this thread. Meanwhile another thread asks how far it is, if that is reported.
    pub(crate) fn watch<T>(
        &self,
        total: u64,
        done: impl Fn() -> u64 + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        if self.bar.is_hidden() {
            return work();
        }
        self.begin_bytes(total);
        let (sender, ended) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    self.bar.set_position(done().min(total));
                }
            });
            let result = work();
            drop(sender);
            result
        })
    }
}

fn write_json(what: &str, state: &ProgressState, out: &mut dyn Write) -> fmt::Result {
    let object = json!({
        "version": crate::json::VERSION,
        "progress": what,
        "done": state.pos(),
        "of": state.len(),
        "per_second": state.per_sec(),
        "seconds": state.elapsed().as_secs_f64(),
        "seconds_left": state.len().filter(|_| state.pos() > 0).map(|_| state.eta().as_secs_f64()),
    });
    write!(out, "{object}")
}

/// Prints states of a bar on lines of their own, one a second at most.
#[derive(Debug, Default)]
struct JsonLines {
    printed: Mutex<Option<Instant>>,
}

impl TermLike for JsonLines {
    fn width(&self) -> u16 {
        u16::MAX
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.write_str(text)
    }

    /// A state comes in one call, spaces up to the width in another.
    fn write_str(&self, text: &str) -> io::Result<()> {
        let text = text.trim();
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if text.is_empty() || printed.is_some_and(|at| at.elapsed() < SECOND) {
            return Ok(());
        }
        *printed = Some(Instant::now());
        io::Write::write_all(&mut stderr(), format!("{text}\n").as_bytes())
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
