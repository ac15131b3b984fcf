//! The colours of figures, on white and on black.

use plotters::style::RGBColor;

use crate::figure::{HUES, Series};

/// A colour on white, and its replacement on black.
pub(super) struct Ink {
    pub(super) light: RGBColor,
    pub(super) dark: &'static str,
}

pub(super) const INK: Ink = Ink { light: RGBColor(0x22, 0x22, 0x22), dark: "#E6E6E6" };
pub(super) const PAPER: Ink = Ink { light: RGBColor(0xFE, 0xFE, 0xFE), dark: "#16181B" };
pub(super) const GRID: Ink = Ink { light: RGBColor(0xDD, 0xDD, 0xDD), dark: "#3A3E44" };
/// With the dash of lines: drawn and blank, in turn.
pub(super) const COLOURS: [(Ink, &str); HUES] = [
    (Ink { light: RGBColor(0x1B, 0x4F, 0x9C), dark: "#7FB2F5" }, ""),
    (Ink { light: RGBColor(0xC7, 0x5A, 0x00), dark: "#FFA552" }, "24 14"),
    (Ink { light: RGBColor(0x1E, 0x7D, 0x4F), dark: "#6FD6A0" }, "6 12"),
    (Ink { light: RGBColor(0x8A, 0x2F, 0x8F), dark: "#E29BE6" }, "36 12 6 12"),
    (Ink { light: RGBColor(0xB0, 0x1E, 0x2E), dark: "#FF8A94" }, "48 16"),
    (Ink { light: RGBColor(0x5F, 0x66, 0x6E), dark: "#B4BCC6" }, "18 8 6 8 6 8"),
];

pub(super) fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Style rules for a dark background. Figures also have their colours as attributes, for readers without
/// style rules.
pub(super) fn dark_rules() -> String {
    let mut rules = String::from("@media screen and (prefers-color-scheme: dark) {\n");
    for Ink { light, dark } in [INK, PAPER, GRID].into_iter().chain(COLOURS.map(|(ink, _)| ink)) {
        for attribute in ["fill", "stroke"] {
            let light = hex(light);
            let rule = format!("svg [{attribute}=\"{light}\"] {{ {attribute}: {dark} }}\n");
            rules.push_str(&rule);
        }
    }
    rules + "}\n"
}

pub(super) fn colour(series: &Series) -> RGBColor {
    COLOURS[series.hue % HUES].0.light
}

pub(super) fn escaped(text: &str) -> String {
    let escapes = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;")];
    escapes.iter().fold(text.to_owned(), |text, (c, code)| text.replace(*c, code))
}
