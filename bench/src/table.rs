//! Columns of text: the first to the left, the others to the right unless they begin with a space.

pub(crate) struct Table {
    lines: Vec<Vec<String>>,
    headed: bool,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Self {
        let head: Vec<String> = head.map(str::to_owned).into();
        Self {
            headed: !head.is_empty(),
            lines: if head.is_empty() {
                Vec::new()
            } else {
                vec![head]
            },
        }
    }

    pub(crate) fn add<const N: usize>(&mut self, line: [String; N]) {
        self.lines.push(line.into());
    }

    /// Nothing when there is only a head.
    pub(crate) fn text(&self) -> String {
        if self.lines.len() <= usize::from(self.headed) {
            return String::new();
        }
        let columns = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for line in &self.lines {
            let cells = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| {
                    if column == 0 || !self.headed || cell.starts_with(' ') {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_below_each_other() {
        let mut table = Table::new(["row", "µs", "  names"]);
        table.add(["native".into(), "9.5".into(), "  read".into()]);
        table.add(["x".into(), "12.5".into(), String::new()]);
        assert_eq!(
            table.text(),
            "row       µs    names\nnative   9.5    read\nx       12.5\n"
        );
    }

    #[test]
    fn a_head_alone_is_nothing() {
        assert_eq!(Table::new(["row", "µs"]).text(), "");
    }
}
