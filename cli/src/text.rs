//! Numbers for readers, and the text of bytes.

use criba::PrefixExtractor;
pub(crate) use criba_report::numbers::{counted, percent, ratio, thousands};

pub(crate) use crate::escaping::{escaped, of_argument};

/// The bytes of an argument such as 65536, 64K or 64M, which are powers of 1024.
pub(crate) fn bytes_of(size: &str) -> Result<u64, parse_size::Error> {
    parse_size::Config::new().with_binary().parse_size(size)
}

/// The number of prefixes in a filter, and their rule.
pub(crate) fn prefixes(number: u64, extractor: Option<PrefixExtractor>) -> String {
    match (number, extractor) {
        (0, None) => "none".to_owned(),
        (_, None) => format!("{}, of a rule unknown to this version", thousands(number)),
        (_, Some(extractor)) => format!("{}, {extractor}", thousands(number)),
    }
}
