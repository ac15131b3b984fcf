//! When keys expire: the options and the texts.

use std::path::Path;
use std::time::{Duration, SystemTime};

use criba::Expiry;

use crate::failure::Failure;
use crate::text::escaped;

/// The option for an expiry.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct ExpiryArgs {
    /// Expire so long after the write: 90s, 7d, "1h 30m" (m is a minute, M a month), or never [default: as the store
    /// has recorded, see `stats`]
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) expires_in: Option<Expiry>,
}

fn duration(text: &str) -> Result<Expiry, String> {
    if text == "never" {
        return Ok(Expiry::Never);
    }
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a time such as 90s, 12h or 7d, or never"))?;
    if duration.is_zero() {
        return Err("zero: what is written would be expired".to_owned());
    }
    Ok(Expiry::In(duration))
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
pub(crate) fn shown(expiry: Option<SystemTime>) -> String {
    const LATEST: u64 = 253_402_300_799_999;
    match expiry {
        None => "never".to_owned(),
        Some(time) if millis(time) > LATEST => format!("{} ms", millis(time)),
        Some(time) => humantime::format_rfc3339_millis(time).to_string(),
    }
}

/// The error of an option whose lines cannot hold an expiry.
pub(crate) fn refused(dir: &Path, key: &[u8], option: &str) -> Failure {
    let found = format!("the key {}, which expires; use `dump` without --plain", escaped(key));
    Failure::unfit(dir, format!("keys that do not expire, for {option}"), found)
}
