//! Tables for people: left-aligned columns as wide as what stands in them.

use std::fmt::Write;

/// Blanks between columns.
const GAP: usize = 2;

/// Rows of text under a head.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|text| (*text).to_owned()).collect()] }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// The lines, each ended by a line break; nothing where there are no rows.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        if self.is_empty() {
            return text;
        }
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let wide = |cell: &String| cell.chars().count();
        let widths: Vec<_> = (0..columns)
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(wide).max().unwrap_or_default()
            })
            .collect();
        for row in &self.rows {
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
        let mut table = Table::new(&["A", "LONG HEAD", "C"]);
        assert_eq!(table.render(), "");
        table.row(["größer".into(), "x".into(), String::new()]);
        table.row(["1".into(), "y".into(), "z".into()]);
        assert_eq!(table.render(), "A       LONG HEAD  C\ngrößer  x\n1       y          z\n");
    }
}
