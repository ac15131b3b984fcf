//! The texts that experiments come from.

/// A text that an experiment comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// *Una Implementación Eficiente en C++ y Análisis de Rendimiento de Filtros de Bloom*.
    Paper,
    /// *Análisis de la eficiencia de los filtros de Bloom*.
    Study,
    /// A course notebook on Bloom filters.
    Notebook,
    /// *Guía Completa de Filtros de Bloom en Python*.
    Guide,
    /// *Filtros Bloom*, a wiki page.
    Wiki,
    /// None of the five.
    Beyond,
}

impl Source {
    /// The five texts.
    pub const TEXTS: [Self; 5] =
        [Self::Paper, Self::Wiki, Self::Guide, Self::Study, Self::Notebook];

    /// The letter before its lines in docs/lab.md.
    pub fn letter(self) -> &'static str {
        match self {
            Self::Paper => "P",
            Self::Study => "S",
            Self::Notebook => "N",
            Self::Guide => "G",
            Self::Wiki => "W",
            Self::Beyond => "",
        }
    }

    /// The short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "the paper",
            Self::Study => "the study",
            Self::Notebook => "the notebook",
            Self::Guide => "the guide",
            Self::Wiki => "the wiki",
            Self::Beyond => "beyond them",
        }
    }

    /// Whose it is, in full.
    pub fn reference(self) -> &'static str {
        match self {
            Self::Paper => {
                "Burgos Rivero and others, Una Implementación Eficiente en C++ y Análisis de \
                 Rendimiento de Filtros de Bloom"
            }
            Self::Study => {
                "Escobar, López and Valderrama, Análisis de la eficiencia de los filtros de Bloom, \
                 2020"
            }
            Self::Notebook => "A course notebook on Bloom filters, with 38 exercises",
            Self::Guide => "Guía Completa de Filtros de Bloom en Python, 2025",
            Self::Wiki => "Knoppia, Filtros Bloom, a wiki page, 2026",
            Self::Beyond => "An experiment that none of the five texts has",
        }
    }
}
