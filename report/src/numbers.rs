//! Numbers for readers.

/// A number with a comma between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 table", "2 tables".
pub fn counted(number: u64, noun: &str) -> String {
    let plural = match noun {
        _ if number == 1 => "",
        _ if noun.ends_with('x') => "es",
        _ => "s",
    };
    format!("{} {noun}{plural}", thousands(number))
}

/// A probability as a percentage with two to four significant digits, never with an exponent; "–" for none.
pub fn percent(share: Option<f64>) -> String {
    match share.map(|share| share * 100.0) {
        None => "–".to_owned(),
        Some(percent) if percent >= 10.0 || percent == 0.0 => format!("{percent:.1} %"),
        Some(percent) if percent >= 0.01 => format!("{percent:.3} %"),
        Some(percent) => {
            let places = 1 - percent.log10().floor() as i32;
            format!("{percent:.places$} %", places = places.clamp(0, 20) as usize)
        }
    }
}

/// A part of a whole; `None` if the whole is 0.
pub fn ratio(part: f64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let grouped = [0, 12, 999, 1000, 12_345, 1_234_567].map(thousands);
        assert_eq!(grouped, ["0", "12", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(counted(1, "table"), "1 table");
        assert_eq!(counted(1000, "table"), "1,000 tables");
    }

    #[test]
    fn percentages_keep_their_digits() {
        let shown = [None, Some(0.0), Some(0.010_04), Some(0.97), Some(1e-6), Some(1.2e-5)];
        assert_eq!(
            shown.map(percent),
            ["–", "0.0 %", "1.004 %", "97.0 %", "0.00010 %", "0.0012 %"]
        );
    }
}
