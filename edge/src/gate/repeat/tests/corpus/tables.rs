//! Tables and pictures of characters.

use super::{Named, named};

fn markdown(columns: usize, rows: usize, cell: &str) -> String {
    let line = |cell: &str| format!("|{}\n", format!(" {cell} |").repeat(columns));
    line("column") + &line("---") + &line(cell).repeat(rows)
}

fn latex(columns: usize, rows: usize, cell: &str) -> String {
    let row = format!("{} \\\\\n\\hline\n", vec![cell; columns].join(" & "));
    format!("\\begin{{tabular}}{{|{}}}\n\\hline\n{}\\end{{tabular}}", "c|".repeat(columns), row.repeat(rows))
}

fn ascii(columns: usize, rows: usize, width: usize, cell: &str) -> String {
    let ruler = format!("+{}\n", format!("{}+", "-".repeat(width + 2)).repeat(columns));
    let row = format!("|{}\n", format!(" {cell:width$} |").repeat(columns));
    format!("{ruler}{}", format!("{row}{ruler}").repeat(rows))
}

fn boxes(columns: usize, rows: usize) -> String {
    let line = |left: &str, middle: &str, right: &str| {
        format!("{left}{}{right}\n", vec!["─".repeat(8); columns].join(middle))
    };
    let row = format!("{}│\n", format!("│{}", " ".repeat(8)).repeat(columns));
    let inner = line("├", "┼", "┤") + &row;
    line("┌", "┬", "┐") + &row + &inner.repeat(rows) + &line("└", "┴", "┘")
}

fn wide(columns: usize, rows: usize, rule: usize) -> String {
    let head = format!("|{}\n", " name |".repeat(columns));
    let ruler = format!("|{}\n", format!("{}|", "-".repeat(rule)).repeat(columns));
    head + &ruler + &format!("|{}\n", "  |".repeat(columns)).repeat(rows)
}

pub(super) fn texts() -> Vec<Named> {
    let mut texts = Vec::new();
    for (columns, rows, cell) in [
        (2, 100, "yes"),
        (3, 200, "0"),
        (5, 100, "0.00"),
        (4, 60, "n/a"),
        (6, 40, "✓"),
        (3, 150, "없음"),
        (8, 80, "-"),
        (2, 300, ""),
        (3, 50, "the same sentence in every cell of it"),
        (10, 60, "0"),
        (4, 100, "TBD"),
        (2, 30, "无"),
    ] {
        texts.push(named(format!("markdown {columns}x{rows} {cell}"), markdown(columns, rows, cell)));
    }
    for (columns, rows, cell) in [(3, 100, "0"), (5, 60, "$\\times$"), (8, 50, "1"), (4, 80, "--")] {
        texts.push(named(format!("latex {columns}x{rows} {cell}"), latex(columns, rows, cell)));
    }
    for (columns, rows, width, cell) in
        [(3, 50, 8, "0"), (5, 40, 10, ""), (2, 60, 20, "empty"), (8, 30, 4, "x")]
    {
        texts.push(named(format!("ascii {columns}x{rows}x{width}"), ascii(columns, rows, width, cell)));
    }
    for (columns, rows) in [(3, 30), (8, 20), (1, 100), (12, 12)] {
        texts.push(named(format!("boxes {columns}x{rows}"), boxes(columns, rows)));
    }
    for (columns, rows, rule) in [(4, 100, 3), (3, 20, 500), (20, 30, 20), (1, 200, 1500)] {
        texts.push(named(format!("wide {columns}x{rows}x{rule}"), wide(columns, rows, rule)));
    }
    for (columns, rows, cell, gap) in [
        (20, 100, "0", ","),
        (50, 50, "0", ","),
        (28, 28, "0", ", "),
        (10, 200, "0.0", ","),
        (12, 200, "", ","),
        (6, 250, "NULL", ","),
        (8, 100, "0", "\t"),
        (5, 100, "\"\"", ";"),
        (3, 300, "false", ","),
        (50, 50, "0", ", "),
    ] {
        let row = vec![cell; columns].join(gap) + "\n";
        texts.push(named(format!("csv {columns}x{rows} {cell:?}{gap:?}"), row.repeat(rows)));
    }
    for (name, rule) in [
        ("equals", "="),
        ("dashes", "-"),
        ("dots", "."),
        ("stars", "*"),
        ("hashes", "#"),
        ("heavy lines", "━"),
        ("blocks", "█"),
        ("underscores", "_"),
        ("tildes", "~"),
        ("dashes with gaps", "- "),
    ] {
        let section = |i: usize| format!("{0}\nSection {i}\n{0}\n\n", rule.repeat(80));
        texts.push(named(format!("sections under {name}"), (0..30).map(section).collect::<String>()));
        texts.push(named(format!("one ruler of {name}"), rule.repeat(1500)));
        texts.push(named(
            format!("rulers of {name} below each other"),
            format!("{}\n", rule.repeat(79)).repeat(30),
        ));
    }
    let bar = |i: usize| format!("[{}{}] {i:3}%\n", "#".repeat(i), " ".repeat(100 - i));
    texts.push(named("progress bar", (0..=100).map(bar).collect::<String>()));
    let bar = |i: usize| format!("\r{}{} {i}/50", "█".repeat(i), "░".repeat(50 - i));
    texts.push(named("progress bar in one line", (0..=50).map(bar).collect::<String>()));
    let board = format!("{}\n{}\n", "⬛⬜".repeat(4), "⬜⬛".repeat(4)).repeat(4);
    texts.push(named("chess board", board));
    texts.push(named("maze", format!("{}\n{}\n", "#.".repeat(40), "##".repeat(40)).repeat(40)));
    texts.push(named("empty canvas", format!("{}\n", " ".repeat(60)).repeat(40)));
    texts.push(named("grid of water", format!("{}\n", "🌊".repeat(30)).repeat(40)));
    texts.push(named("grid of life", format!("{}\n", ".".repeat(50)).repeat(50)));
    texts.push(named("brick wall", "|___|___|___|___|___|\n|_|___|___|___|___|_|\n".repeat(60)));
    texts
}
