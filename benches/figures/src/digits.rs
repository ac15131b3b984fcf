//! How numbers are written.

pub(crate) use criba_report::numbers::thousands;

/// Three digits that count.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 9999.5 => thousands(value.round() as u64),
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.9995 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [0.0, 0.012_34, 1.0, 12.34, 99.99, 123.4, 99_999.0, 1_234_567.0].map(digits);
        assert_eq!(shown, ["0.00", "0.0123", "1.00", "12.3", "100", "123", "99,999", "1,234,567"]);
    }
}
