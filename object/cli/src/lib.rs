//! The command `criba-object`: `readamp` measures lookups on a bucket in requests, time and money; `gc` removes
//! objects that nothing needs.
//!
//! [`metered`] counts requests between a store and its bucket, `place` is where a run keeps its objects, [`mod@measure`]
//! makes the lookups, [`report`] has the counts, which `print` and `page` show.

mod gc;
pub mod measure;
pub mod metered;
mod page;
mod place;
mod print;
mod readamp;
pub mod report;

use std::io::Write;

use clap::{Parser, Subcommand};
use criba_cli::{Answer, Failure, Result};

/// Stores of criba in a bucket, at the command line
///
/// A URL is file:///PATH or memory:///; s3://BUCKET/PATH, gs://BUCKET/PATH and az://CONTAINER/PATH in builds with the
/// features aws, gcp and azure. Keys, regions and endpoints come from the environment, such as AWS_ACCESS_KEY_ID.
#[derive(Debug, Parser)]
#[command(
    name = "criba-object",
    version,
    max_term_width = 80,
    after_help = "Exit codes: 0; 1 a check does not hold; 2 wrong usage; 3 an error; 130 interrupted."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Readamp(readamp::Args),
    Gc(gc::Args),
}

/// Runs a command.
///
/// # Errors
/// Those of the bucket and of the local files.
pub fn run(cli: &Cli, out: &mut dyn Write) -> Result<Answer> {
    match &cli.command {
        Command::Readamp(args) => readamp::run(args, out),
        Command::Gc(args) => gc::run(args, out),
    }
}

/// A failure of the bucket.
fn failed(error: criba_object::Error) -> Failure {
    match error {
        criba_object::Error::Store(error) => error.into(),
        criba_object::Error::Url { .. } => Failure::Usage(error.to_string()),
        error => Failure::Other(error.into()),
    }
}
