//! Tables: aligned columns with a legend on a terminal, tab-separated lines for `cut` and `awk` in a pipe.

use crate::colour::{Style, Tone};
use crate::escape;
use crate::page::Page;

/// One cell: its text, and its tone and side on a terminal.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    tone: Option<Tone>,
    right: bool,
}

impl Cell {
    /// A cell whose text is made safe to print.
    pub(crate) fn new(text: &str) -> Cell {
        Cell { text: escape::line(text).into_owned(), tone: None, right: false }
    }

    /// The same cell at the right side of its column, where numbers line up.
    pub(crate) fn right(mut self) -> Cell {
        self.right = true;
        self
    }

    /// The same cell in a tone.
    pub(crate) fn tone(mut self, tone: Tone) -> Cell {
        self.tone = Some(tone);
        self
    }
}

/// Rows under headings.
#[derive(Debug)]
pub(crate) struct Table {
    headings: &'static [&'static str],
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new(headings: &'static [&'static str]) -> Table {
        Table { headings, rows: Vec::new() }
    }

    /// Adds a row of as many cells as there are headings.
    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.headings.len());
        self.rows.push(row);
    }

    /// The table as text. `noun` is what a row is, for the count below: `1 plugin listed.`
    pub(crate) fn render(&self, style: Style, legend: bool, noun: &str) -> String {
        if style.terminal { self.aligned(style, legend, noun) } else { self.tabbed() }
    }

    /// The rows' cells with a tab between them.
    pub(crate) fn tabbed(&self) -> String {
        let line = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join("\t");
        self.rows.iter().flat_map(|row| [line(row), "\n".to_owned()]).collect()
    }

    fn aligned(&self, style: Style, legend: bool, noun: &str) -> String {
        let mut page = Page::default();
        self.lines(style, legend).iter().for_each(|line| page.line(line));
        if legend {
            let count = self.rows.len();
            let plural = if count == 1 { "" } else { "s" };
            page.line(format_args!("\n{count} {noun}{plural} listed."));
        }
        page.into_text()
    }

    /// The aligned lines: the headings, where there is a legend, and the rows.
    pub(crate) fn lines(&self, style: Style, legend: bool) -> Vec<String> {
        let widths: Vec<usize> = (0..self.headings.len()).map(|column| self.width(column, legend)).collect();
        let mut lines = Vec::new();
        if legend {
            let heading = |(column, text): (usize, &&str)| {
                // A heading stands above its numbers.
                let right = self.rows.first().is_some_and(|row| row[column].right);
                Cell { text: (*text).to_owned(), tone: Some(Tone::Strong), right }
            };
            let headings: Vec<Cell> = self.headings.iter().enumerate().map(heading).collect();
            lines.push(aligned_line(style, &widths, &headings));
        }
        lines.extend(self.rows.iter().map(|row| aligned_line(style, &widths, row)));
        lines
    }

    fn width(&self, column: usize, legend: bool) -> usize {
        let heading = if legend { self.headings[column].chars().count() } else { 0 };
        self.rows.iter().map(|row| row[column].text.chars().count()).max().unwrap_or(0).max(heading)
    }
}

fn aligned_line(style: Style, widths: &[usize], cells: &[Cell]) -> String {
    let mut line = String::new();
    for (Cell { text, tone, right }, width) in cells.iter().zip(widths) {
        // The colour's own bytes take no room, so the padding is counted here.
        let padding = std::iter::repeat_n(' ', width - text.chars().count());
        let painted = tone.map_or_else(|| text.clone(), |tone| style.paint(tone, text));
        if *right {
            line.extend(padding);
            line.push_str(&painted);
        } else {
            line.push_str(&painted);
            line.extend(padding);
        }
        line.push(' ');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["NAME", "STATE", "DESCRIPTION"]);
        table.push(vec![Cell::new("textstats"), Cell::new("active"), Cell::new("Grüße\tund\x1b[1m")]);
        table.push(vec![Cell::new("x"), Cell::new("inactive"), Cell::new("")]);
        table
    }

    #[test]
    fn a_terminal_gets_columns_and_a_legend() {
        assert_eq!(
            table().render(Style::TERMINAL, true, "plugin"),
            "NAME      STATE    DESCRIPTION\n\
             textstats active   Grüße\\tund\\u{1b}[1m\n\
             x         inactive\n\
             \n\
             2 plugins listed.\n"
        );
    }

    #[test]
    fn numbers_line_up_under_their_heading() {
        let mut table = Table::new(&["NAME", "CALLS"]);
        table.push(vec![Cell::new("x"), Cell::new("7").right()]);
        table.push(vec![Cell::new("y"), Cell::new("123456").right()]);
        assert_eq!(table.lines(Style::TERMINAL, true), ["NAME  CALLS ", "x         7 ", "y    123456 "]);
        assert_eq!(table.render(Style::PLAIN, true, "plugin"), "x\t7\ny\t123456\n");
    }

    #[test]
    fn no_legend_drops_headings_and_count() {
        assert_eq!(
            table().render(Style::TERMINAL, false, "plugin"),
            "textstats active   Grüße\\tund\\u{1b}[1m\nx         inactive\n"
        );
    }

    #[test]
    fn a_pipe_gets_one_tab_between_cells() {
        assert_eq!(
            table().render(Style::PLAIN, true, "plugin"),
            "textstats\tactive\tGrüße\\tund\\u{1b}[1m\nx\tinactive\t\n"
        );
    }

    #[test]
    fn nothing_is_a_table_too() {
        let empty = Table::new(&["NAME"]);
        assert_eq!(empty.render(Style::TERMINAL, true, "plugin"), "NAME\n\n0 plugins listed.\n");
        assert_eq!(empty.render(Style::PLAIN, true, "plugin"), "");
    }
}
