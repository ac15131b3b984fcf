//! When keys expire: the options and the texts.

use std::path::Path;
use std::time::{Duration, SystemTime};

use criba::{Db, Expiry};

use crate::failure::{Failure, Result};
use crate::text::escaped;

/// The option for an expiry.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct ExpiryArgs {
    /// Expire so long from now: 7d, "1h 30m" [default: the store's own, which is never unless a program set it]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) expires_in: Option<Duration>,
}

impl ExpiryArgs {
    /// The expiry of what is written now; `None` for the store's default.
    pub(crate) fn expiry(self, db: &Db) -> Result<Option<Expiry>> {
        let Some(expires_in) = self.expires_in else { return Ok(None) };
        let time = db.now().checked_add(expires_in);
        let time = time.ok_or_else(|| Failure::Usage("--expires-in: too long a time".into()))?;
        Ok(Some(Expiry::At(time)))
    }
}

fn duration(text: &str) -> std::result::Result<Duration, String> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a time such as 90s, 12h or 7d"))?;
    if duration.is_zero() {
        return Err("zero: what is written would be expired".to_owned());
    }
    Ok(duration)
}

/// The milliseconds from the beginning of 1970 on.
pub(crate) fn millis(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// The expiry in the last field of a dump's line.
pub(crate) fn parsed(text: &[u8]) -> Option<Expiry> {
    if text.is_empty() {
        return Some(Expiry::Never);
    }
    // `parse` would take a sign, too.
    let text = str::from_utf8(text).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    let millis = text.parse().ok().filter(|&millis| millis < u64::MAX)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)).map(Expiry::At)
}

/// The time for a reader, or the milliseconds after the year 9999.
pub(crate) fn shown(expiry: Expiry) -> String {
    const LATEST: u64 = 253_402_300_799_999;
    match expiry {
        Expiry::Never => "never".to_owned(),
        Expiry::At(time) if millis(time) > LATEST => format!("{} ms", millis(time)),
        Expiry::At(time) => humantime::format_rfc3339_millis(time).to_string(),
    }
}

/// The error of an option whose lines cannot hold an expiry.
pub(crate) fn refused(dir: &Path, key: &[u8], option: &str) -> Failure {
    let found = format!("another at the key {}; leave {option} out", escaped(key));
    Failure::unfit(dir, "keys that do not expire", found)
}
