//! A table of texts, written for a terminal, as Markdown, or as HTML.

use crate::svg::escape;
use std::fmt::Write as _;

/// Rows of cells under a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    /// The columns whose texts begin at the left; numbers end at the right.
    left: &'static [usize],
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(head: impl Into<Vec<&'static str>>, left: &'static [usize]) -> Table {
        Table {
            head: head.into(),
            left,
            rows: Vec::new(),
        }
    }

    /// Adds a row, with a cell for each column.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.head.len());
        self.rows.push(cells);
    }

    /// All lines, padded to columns of one width each.
    fn padded(&self) -> Vec<Vec<String>> {
        let head = self.head.iter().map(|name| (*name).to_owned()).collect();
        let mut lines: Vec<Vec<String>> = [head].into_iter().chain(self.rows.clone()).collect();
        for column in 0..self.head.len() {
            let width = |line: &Vec<String>| line[column].chars().count();
            let most = lines.iter().map(width).max().unwrap_or(0);
            for line in &mut lines {
                let cell = &line[column];
                line[column] = match self.left.contains(&column) {
                    true => format!("{cell:<most$}"),
                    false => format!("{cell:>most$}"),
                };
            }
        }
        lines
    }

    /// For a terminal: two blanks between columns, and a rule below the head.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for (k, line) in self.padded().iter().enumerate() {
            let line = line.join("  ");
            _ = writeln!(text, "{}", line.trim_end());
            if k == 0 {
                _ = writeln!(text, "{}", "-".repeat(line.chars().count()));
            }
        }
        text
    }

    /// For a document.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::new();
        for (k, line) in self.padded().iter().enumerate() {
            _ = writeln!(text, "| {} |", line.join(" | "));
            if k == 0 {
                let rule = line.iter().map(|cell| "-".repeat(cell.chars().count() + 2));
                _ = writeln!(text, "|{}|", rule.collect::<Vec<_>>().join("|"));
            }
        }
        text
    }

    /// For a page; `mark` is HTML in front of a row's first cell. Rows with a cell that says `FAILED` are of that class.
    pub(crate) fn html(&self, mark: impl Fn(usize) -> String) -> String {
        let class = |column: usize| match self.left.contains(&column) {
            true => " class=\"left\"",
            false => "",
        };
        let mut html = String::from("<div class=\"wide\"><table>\n<thead><tr>");
        for (column, name) in self.head.iter().enumerate() {
            _ = write!(html, "<th{}>{}</th>", class(column), escape(name));
        }
        html += "</tr></thead>\n<tbody>\n";
        for (k, row) in self.rows.iter().enumerate() {
            let failed = row.iter().any(|cell| cell.contains("FAILED"));
            html += if failed {
                "<tr class=\"failed\">"
            } else {
                "<tr>"
            };
            for (column, cell) in row.iter().enumerate() {
                let mark = if column == 0 { mark(k) } else { String::new() };
                _ = write!(html, "<td{}>{mark}{}</td>", class(column), escape(cell));
            }
            html += "</tr>\n";
        }
        html + "</tbody>\n</table></div>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_three_forms() {
        let mut table = Table::new(["name", "us", "verified"], &[0, 2]);
        table.row(["st", "1.50", "2/2"].map(str::to_owned));
        table.row(["a<b", "-", "0/2 FAILED"].map(str::to_owned));
        assert_eq!(
            table.text(),
            "name    us  verified\n----------------------\nst    1.50  2/2\na<b      -  0/2 FAILED\n"
        );
        assert_eq!(
            table.markdown(),
            "| name |   us | verified   |\n|------|------|------------|\n| st   | 1.50 | 2/2        |\n| a<b  |    - | 0/2 FAILED |\n"
        );
        let html = table.html(|k| format!("<i>{k}</i>"));
        assert!(html.contains("<th>us</th>"), "{html}");
        assert!(
            html.contains("<tr class=\"failed\"><td class=\"left\"><i>1</i>a&lt;b</td>"),
            "{html}"
        );
    }
}
