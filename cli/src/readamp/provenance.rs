//! Where a report comes from: command, version, machine and date.

use std::ffi::OsString;
use std::fs;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::text::counted;

/// Names, and lines of text.
pub(super) fn lines(seed: u64) -> Vec<(&'static str, String)> {
    vec![
        ("command", command(std::env::args_os().skip(1))),
        ("version", format!("criba {}", env!("CARGO_PKG_VERSION"))),
        ("seed", seed.to_string()),
        ("machine", machine()),
        ("date", date(SystemTime::now())),
    ]
}

/// The command line, with quotes where a shell needs them.
fn command(arguments: impl Iterator<Item = OsString>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,+:@%".contains(c);
    let quoted = arguments.map(|argument| {
        let argument = argument.to_string_lossy();
        if !argument.is_empty() && argument.chars().all(plain) {
            argument.into_owned()
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    });
    std::iter::once("criba".to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

fn machine() -> String {
    let processors = available_parallelism().map_or(0, |count| count.get() as u64);
    let processors = match processors {
        0 => "processors unknown".to_owned(),
        count => counted(count, "processor"),
    };
    // The version of a Linux kernel, where there is one.
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = format!("{} {}", std::env::consts::OS, release.trim());
    format!("{processors}, {}, {}", std::env::consts::ARCH, system.trim())
}

/// The day and minute in UTC, in the calendar of today.
fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (mut day, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    let mut year = 1970;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", day + 1, minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400 - 60, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_000_000_000, "2001-09-09 01:46 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59 UTC"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let words = ["readamp", "--n", "5", "--report", "a b'c", ""].map(OsString::from);
        assert_eq!(command(words.into_iter()), r"criba readamp --n 5 --report 'a b'\''c' ''");
    }
}
