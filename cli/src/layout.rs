//! Text for a terminal of 80 columns or fewer.

use std::io::stdout;

use rustix::termios::tcgetwinsize;

/// Also for what goes into a file or a pipe.
const MOST_COLUMNS: usize = 80;

/// The columns of the terminal, at most 80.
fn columns() -> usize {
    match tcgetwinsize(stdout()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).min(MOST_COLUMNS),
        _ => MOST_COLUMNS,
    }
}

/// Rows below a head, the first cell of each to the left. In a terminal that is too narrow each row is a paragraph, with the name of
/// each cell.
pub(crate) fn table(head: &[&str], widths: &[usize], rows: &[Vec<String>]) -> String {
    table_within(columns(), head, widths, rows)
}

fn table_within(columns: usize, head: &[&str], widths: &[usize], rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    if widths.iter().sum::<usize>() > columns {
        for row in rows {
            let cells = head.iter().zip(row).skip(1).map(|(name, cell)| format!("{name} {cell}"));
            let cells = cells.collect::<Vec<_>>().join(", ");
            text += &wrapped_within(columns, &format!("{} {}: {cells}", head[0], row[0]), 4);
            text.push('\n');
        }
        return text;
    }
    let head = head.iter().map(ToString::to_string).collect();
    for row in [&head].into_iter().chain(rows) {
        for (number, (cell, &width)) in row.iter().zip(widths).enumerate() {
            let spaces = " ".repeat(width.saturating_sub(cell.chars().count()));
            text += &if number == 0 { cell.clone() + &spaces } else { spaces + cell };
        }
        text.push('\n');
    }
    text
}

/// Breaks lines at spaces to fit the columns, where words allow it. Lines after the first are indented.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    wrapped_within(columns(), text, indent)
}

fn wrapped_within(columns: usize, text: &str, indent: usize) -> String {
    let mut wrapped = String::with_capacity(text.len());
    let mut column = 0;
    // No line begins with a percent sign.
    for (number, word) in text.replace(" %", "\u{a0}%").split(' ').enumerate() {
        let width = word.chars().count();
        if number > 0 && column + 1 + width > columns {
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
        let too_long: Vec<_> = lines.lines().filter(|line| line.len() > MOST_COLUMNS).collect();
        assert_eq!(too_long, [format!("  {long}")]);
    }

    #[test]
    fn rows_are_paragraphs_where_a_line_is_too_long() {
        let rows = [vec!["L0".to_owned(), "1".to_owned(), "12.0 KiB".to_owned()]];
        let shown =
            |columns| table_within(columns, &["level", "tables", "size"], &[5, 8, 11], &rows);
        assert_eq!(shown(24), "level  tables       size\nL0          1   12.0 KiB\n");
        assert_eq!(shown(20), "level L0: tables 1,\n    size 12.0 KiB\n");
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
