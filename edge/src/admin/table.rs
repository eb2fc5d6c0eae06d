//! Tables for people: left-aligned columns as wide as what stands in them.

use std::fmt::Write;

/// Blanks between columns.
const GAP: usize = 2;

/// Rows of text under a head.
pub(super) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|text| (*text).to_owned()).collect(), rows: Vec::new() }
    }

    #[must_use]
    pub(super) fn with<const N: usize>(mut self, rows: impl Iterator<Item = [String; N]>) -> Self {
        self.rows.extend(rows.map(Vec::from));
        self
    }

    /// How many rows it has, without the head.
    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The lines, each ended by a line break.
    pub(super) fn render(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let wide = |column: usize| {
            let cells = all().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<_> = (0..self.head.len()).map(wide).collect();
        let mut text = String::new();
        for row in all() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _infallible = write!(line, "{cell:width$}{:GAP$}", "");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["größer", "x", ""], ["1", "y", "z"]].map(|row| row.map(str::to_owned));
        let table = Table::new(&["A", "LONG HEAD", "C"]).with(rows.into_iter());
        assert_eq!(table.rows(), 2);
        assert_eq!(table.render(), "A       LONG HEAD  C\ngrößer  x\n1       y          z\n");
    }
}
