//! Text for a terminal of 80 columns.

const COLUMNS: usize = 80;

/// Breaks lines at spaces to fit the columns, where words allow it. Lines after the first are indented.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    let mut column = 0;
    // No line begins with a percent sign.
    for (number, word) in text.replace(" %", "\u{a0}%").split(' ').enumerate() {
        let width = word.chars().count();
        if number > 0 && column + 1 + width > COLUMNS {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if number > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
    }
    wrapped.replace("\u{a0}%", " %")
}

/// A number of bytes with its largest unit.
pub(crate) fn size(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces() {
        assert_eq!(wrapped("  a  b ", 4), "  a  b ");
        let rate = format!("{} 12 %", "x".repeat(76));
        assert_eq!(wrapped(&rate, 1), rate.replace(" 12", "\n 12"));
        let long = "k".repeat(90);
        let text = format!("{} {long} {}", "a ".repeat(45), "b ".repeat(45));
        let lines = wrapped(text.trim_end(), 2);
        assert_eq!(lines.replace("\n ", ""), text.trim_end());
        let too_long: Vec<_> = lines.lines().filter(|line| line.len() > COLUMNS).collect();
        assert_eq!(too_long, [format!("  {long}")]);
    }

    #[test]
    fn sizes_have_a_unit() {
        let sizes = [0, 1023, 1024, 25_136, 3 << 29, 5 << 40, 5 << 50];
        let shown = sizes.map(size);
        assert_eq!(
            shown,
            ["0 B", "1023 B", "1.0 KiB", "24.5 KiB", "1.5 GiB", "5.0 TiB", "5120.0 TiB"]
        );
    }
}
