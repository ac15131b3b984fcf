use std::io::Write;

use criba_cli::{Answer, Result};
use criba_object::{Garbage, Options};
use criba_report::numbers::{counted, thousands};

use crate::failed;

/// List the objects that nothing needs, or remove them
///
/// Earlier writers left these objects. The newest version does not name them, nor does a pinned one, nor one that was
/// the newest within the grace time. What the present writer drops, it removes itself. Objects of other programs are not
/// listed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The bucket, and the path of the store there
    #[arg(long)]
    url: String,
    /// Remove what is listed
    #[arg(long)]
    remove: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let garbage = Garbage::find(args.url.as_str(), &Options::new()).map_err(failed)?;
    let mut bytes = 0;
    for object in garbage.objects() {
        writeln!(out, "{:>15} {}", thousands(object.bytes), object.name)?;
        bytes += object.bytes;
    }
    let objects = counted(garbage.objects().len() as u64, "object");
    out.flush()?; // what is removed was listed before
    if args.remove {
        garbage.remove().map_err(failed)?;
        writeln!(out, "removed {objects}, {}", counted(bytes, "byte"))?;
    } else {
        writeln!(out, "{objects}, {}; --remove removes them", counted(bytes, "byte"))?;
    }
    Ok(Answer::Yes)
}
