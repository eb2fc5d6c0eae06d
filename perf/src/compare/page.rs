//! A comparison as one HTML page that needs nothing else: no script, no font, no picture from anywhere. Pure.

use std::fmt::Write as _;

use super::chart::{self, Axis, Bar, Curve, Scale, number};
use super::figures::Spread;
use super::gate::{Level, Verdict};
use super::rounds::DISTURBED_CORES;
use super::scenario::{Scenario, Unit};
use super::summary::{DIRECT, Row, Table};
use super::{Comparison, Measurement};
use crate::load::Distributions;

const STYLE: &str = include_str!("page.css");

/// A text within HTML, in an element or in an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The page; `command` is the command line that made it.
#[must_use]
pub fn page(comparison: &Comparison, command: &str) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>iop-perf compare</title><style>\n{STYLE}</style></head><body>\n<h1>iop-perf compare</h1>"
    );
    let _ = writeln!(
        out,
        "<p class=\"dim\">{}; load on {}; {:.0} s of rounds. CPU is user and system time of all processes of a subject. \
         Figures are medians of the rounds, ratios geometric means of the ratios within a round, each with the least and the greatest.</p>",
        escape(&comparison.machine),
        comparison.engine,
        comparison.seconds
    );
    out.push_str(&versions(comparison));
    out.push_str(&verdicts(comparison));
    out.push_str(&tables(comparison));
    out.push_str(&latency(comparison));
    out.push_str(&cpu(comparison));
    out.push_str(&memory(comparison));
    out.push_str(&commands(comparison, command));
    out + "</body></html>\n"
}

/// The colour of a subject, the same in every chart.
fn colour(comparison: &Comparison, subject: &str) -> usize {
    /// The grey one: the provider itself is no rival.
    const GREY: usize = 6;
    if subject == DIRECT {
        return GREY;
    }
    let others = comparison.subjects.iter().filter(|other| other.name != DIRECT);
    let index = others.into_iter().position(|other| other.name == subject).unwrap_or(0);
    index + usize::from(index >= GREY)
}

fn versions(comparison: &Comparison) -> String {
    let rows: String = comparison
        .subjects
        .iter()
        .map(|subject| {
            let version = subject.version.as_deref().unwrap_or("the scripted provider of iop-perf");
            format!("<tr><td>{}</td><td>{}</td></tr>", escape(&subject.name), escape(version))
        })
        .collect();
    format!("<div class=\"scroll\"><table><tr><th>subject</th><th>version</th></tr>{rows}</table></div>\n")
}

fn spread(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "–".to_owned(),
        |s| {
            let range = format!("{:.digits$} – {:.digits$}", s.min, s.max);
            format!("{:.digits$}<small>{range}</small>", s.mid)
        },
    )
}

fn verdicts(comparison: &Comparison) -> String {
    let mut out = "<h2>What is demanded</h2>\n".to_owned();
    let count = |level: Level| {
        let of = comparison.verdicts.iter().filter(move |verdict| verdict.demand.level == level);
        (of.clone().filter(|verdict| verdict.pass).count(), of.count())
    };
    let ((required, required_all), (goals, goals_all)) = (count(Level::Required), count(Level::Goal));
    let class = if required == required_all { "good" } else { "bad" };
    let _ = write!(
        out,
        "<p class=\"lead\"><span class=\"{class}\">{required} of {required_all}</span> required lines hold, {goals} of {goals_all} goals are met.</p>"
    );
    let lost: Vec<String> =
        comparison.replies.iter().map(|(name, replies)| format!("{} {replies}", escape(name))).collect();
    let _ = writeln!(out, "<p>Lost, cut or inexact replies: {}.</p>", lost.join(", "));
    if comparison.verdicts.is_empty() {
        return out;
    }
    out.push_str("<div class=\"scroll\"><table><tr><th>figure</th><th></th><th>demand</th><th class=\"n\">measured</th><th></th></tr>\n");
    let mut line = None;
    for verdict in &comparison.verdicts {
        let begins = line != Some(&verdict.demand.line);
        line = Some(&verdict.demand.line);
        out.push_str(&verdict_row(verdict, begins));
    }
    out + "</table></div>\n"
}

/// A demand; the first of a line names it.
fn verdict_row(verdict: &Verdict, begins: bool) -> String {
    let demand = &verdict.demand;
    let (level, class) = match (demand.level, verdict.pass) {
        (Level::Required, true) => ("required", "good"),
        (Level::Required, false) => ("required", "bad"),
        (Level::Goal, true) => ("goal", "good"),
        (Level::Goal, false) => ("goal", "wish"),
    };
    let mut name = String::new();
    if begins {
        name.push_str(&escape(&demand.line));
        if !demand.note.is_empty() {
            let _ = write!(name, "<small>{}</small>", escape(&demand.note));
        }
    }
    format!(
        "<tr><td>{name}</td><td>{level}</td><td><code>{}</code></td><td class=\"n\">{}</td><td class=\"word {class}\">{}</td></tr>\n",
        escape(&demand.gate.to_string()),
        spread(verdict.measured, 2),
        verdict.word()
    )
}

fn tables(comparison: &Comparison) -> String {
    let mut out = "<h2>Figures</h2>\n".to_owned();
    for table in &comparison.tables {
        let others = table.others_cores.map_or(0.0, |others| others.mid);
        let disturbed = if others > DISTURBED_CORES { " <span class=\"bad\">disturbed</span>" } else { "" };
        let _ = writeln!(
            out,
            "<h3>{}</h3><p class=\"dim\">{} Rounds: {} counted of {}; other programs took {others:.2} cores{disturbed}.</p>",
            table.scenario,
            Scenario::find(table.scenario).map_or("", |scenario| scenario.shows),
            table.rounds.len(),
            table.rounds_run
        );
        out.push_str(&figures(table));
    }
    out
}

/// The rows of a load; a column in which nobody has a figure is left out.
fn figures(table: &Table) -> String {
    type Column<'a> = (String, usize, fn(&Row) -> Option<Spread>);
    let columns: [Column<'_>; 7] = [
        (format!("CPU µs/{}", table.unit), 2, |row| row.cost_us),
        (format!("× {}", table.reference), 2, |row| row.ratio),
        (format!("{}s/s", table.unit), 0, |row| row.per_second),
        ("first event p99, ms".to_owned(), 1, |row| row.first_event_p99_ms),
        ("added p50, ms".to_owned(), 2, |row| row.added_p50_ms),
        ("added p99, ms".to_owned(), 2, |row| row.added_p99_ms),
        ("KiB/stream".to_owned(), 1, |row| row.memory_kib),
    ];
    let filled = |column: &&Column<'_>| table.rows.iter().any(|row| column.2(row).is_some());
    let columns: Vec<&Column<'_>> = columns.iter().filter(filled).collect();
    let heads: String =
        columns.iter().map(|column| format!("<th class=\"n\">{}</th>", escape(&column.0))).collect();
    let mut out = format!("<div class=\"scroll\"><table><tr><th>subject</th>{heads}</tr>\n");
    for row in &table.rows {
        let own = if row.subject.starts_with("ours") { " class=\"own\"" } else { "" };
        let cells: String = columns
            .iter()
            .map(|(_, digits, of)| format!("<td class=\"n\">{}</td>", spread(of(row), *digits)))
            .collect();
        let _ = writeln!(out, "<tr{own}><td>{}</td>{cells}</tr>", escape(&row.subject));
    }
    out + "</table></div>\n"
}

/// Shares and times of a distribution. Unit of the times: ms.
type Distribution = Vec<(f64, f64)>;

/// Which times of a load are drawn: the way of an event where it can be known, else the first event, else the whole reply.
fn drawn(scenario: Scenario) -> (&'static str, fn(&Distributions) -> &[u64]) {
    if scenario.is_stamped() {
        ("delivery of an event", |of| &of.delivery_us)
    } else if scenario.unit == Unit::Event {
        ("first event of a stream", |of| &of.first_event_us)
    } else {
        ("whole reply", |of| &of.total_us)
    }
}

fn distribution(measurement: &Measurement, of: fn(&Distributions) -> &[u64]) -> Distribution {
    let distributions = &measurement.report.distributions;
    let times = of(distributions).iter().map(|us| *us as f64 / 1000.0);
    distributions.quantiles.iter().copied().zip(times).collect()
}

fn latency(comparison: &Comparison) -> String {
    let figures: String = comparison.tables.iter().filter_map(|table| cdf(comparison, table)).collect();
    format!(
        "<h2>Latency</h2>\n<p class=\"dim\">The share of times that are not longer, over all counted rounds (medians by share). \
         Times are on a logarithmic axis; shares are drawn so that 99 and 99.9 % can be told apart.</p><div class=\"charts\">{figures}</div>\n"
    )
}

fn cdf(comparison: &Comparison, table: &Table) -> Option<String> {
    let scenario = Scenario::find(table.scenario).filter(|scenario| !scenario.is_fresh)?;
    let (what, of) = drawn(scenario);
    let curves: Vec<Curve> = table
        .rows
        .iter()
        .filter_map(|row| {
            let rounds: Vec<Distribution> = comparison
                .measurements
                .iter()
                .filter(|m| m.scenario == table.scenario && m.subject == row.subject && m.is_exact())
                .filter(|m| table.rounds.contains(&m.round))
                .map(|m| distribution(m, of))
                .collect();
            let points = rounds.first()?.iter().enumerate().filter_map(|(index, (share, _))| {
                let times = rounds.iter().filter_map(|round| Some(round.get(index)?.1));
                Some((Spread::of(times)?.mid.max(0.001), *share))
            });
            Some(Curve {
                name: row.subject.clone(),
                colour: colour(comparison, &row.subject),
                points: points.collect(),
            })
        })
        .collect();
    let svg = chart::curves(
        &curves,
        Axis { scale: Scale::Log, label: "ms" },
        Axis { scale: Scale::Nines, label: "not longer" },
    );
    (!svg.is_empty())
        .then(|| format!("<figure><figcaption>{}: {what}</figcaption>{svg}</figure>\n", table.scenario))
}

fn cpu(comparison: &Comparison) -> String {
    let figure = |table: &Table| -> Option<String> {
        let bar = |row: &Row| Bar {
            name: row.subject.clone(),
            colour: colour(comparison, &row.subject),
            parts: row.processes.clone(),
        };
        let bars: Vec<Bar> = table.rows.iter().map(bar).filter(|bar| !bar.parts.is_empty()).collect();
        let svg = chart::bars(&bars, "µs");
        (!svg.is_empty()).then(|| {
            format!(
                "<figure><figcaption>{}: CPU per {}</figcaption>{svg}</figure>\n",
                table.scenario, table.unit
            )
        })
    };
    // What a silent stream costs is memory.
    let active =
        comparison.tables.iter().filter(|table| table.rows.iter().all(|row| row.memory_kib.is_none()));
    let figures: String = active.filter_map(figure).collect();
    format!("<h2>CPU by process</h2>\n<div class=\"charts\">{figures}</div>\n")
}

fn is_fresh(table: &Table) -> bool {
    Scenario::find(table.scenario).is_some_and(|scenario| scenario.is_fresh)
}

/// Memory of a subject's processes by open silent streams: one point for each load that has memory read.
fn memory(comparison: &Comparison) -> String {
    let mut curves: Vec<Curve> = Vec::new();
    for table in comparison.tables.iter().filter(|table| is_fresh(table)) {
        for row in &table.rows {
            let Some([before, within]) = row.memory_whole_kib else { continue };
            let index = curves.iter().position(|curve| curve.name == row.subject).unwrap_or_else(|| {
                let colour = colour(comparison, &row.subject);
                curves.push(Curve {
                    name: row.subject.clone(),
                    colour,
                    points: vec![(0.0, before / 1024.0)],
                });
                curves.len() - 1
            });
            if let Some(curve) = curves.get_mut(index) {
                curve.points.push((table.concurrency as f64, within / 1024.0));
            }
        }
    }
    for curve in &mut curves {
        curve.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let svg = chart::curves(
        &curves,
        Axis { scale: Scale::Linear, label: "open silent streams" },
        Axis { scale: Scale::Linear, label: "MiB (PSS)" },
    );
    if svg.is_empty() {
        return String::new();
    }
    let rows: String = curves
        .iter()
        .map(|curve| {
            let points =
                curve.points.iter().map(|(streams, mib)| format!("{} MiB at {streams}", number(*mib)));
            format!(
                "<tr><td>{}</td><td>{}</td></tr>",
                escape(&curve.name),
                points.collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    format!(
        "<h2>Memory against streams</h2>\n<figure>{svg}</figure><div class=\"scroll\"><table><tr><th>subject</th>\
         <th>proportional memory of all its processes</th></tr>{rows}</table></div>\n"
    )
}

fn commands(comparison: &Comparison, command: &str) -> String {
    let mut out = format!(
        "<h2>The exact commands</h2>\n<p>This comparison:</p><pre>{}</pre>\n<p>Each subject's own; names between @ are filled in at its start.</p>\n",
        escape(command)
    );
    for subject in &comparison.subjects {
        let _ = writeln!(
            out,
            "<h3>{}</h3><pre>{}</pre><details><summary>its file</summary><pre>{}</pre></details>",
            escape(&subject.name),
            if subject.commands.is_empty() {
                "(nothing runs)".to_owned()
            } else {
                escape(&subject.commands.join("\n"))
            },
            escape(&subject.file)
        );
    }
    out.push_str("<p>The loads, as <code>iop-perf load</code> takes them:</p><pre>");
    for table in &comparison.tables {
        let options = Scenario::find(table.scenario).map(Scenario::options).unwrap_or_default();
        let _ = writeln!(out, "{:<12} {}", table.scenario, escape(&options));
    }
    out + "</pre>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Described, summary};
    use crate::load::Engine;

    fn comparison() -> Comparison {
        let (config, measurements, rounds) = summary::tests::example();
        let described = |name: &str| Described {
            name: name.to_owned(),
            version: Some("v<1>".to_owned()),
            commands: vec!["run --x \"<y>\" & z".to_owned()],
            file: "name: a # <b>".to_owned(),
        };
        Comparison {
            machine: "a <machine>".to_owned(),
            engine: Engine::Epoll,
            seconds: 7.0,
            subjects: ["direct", "ours", "nginx"].map(described).to_vec(),
            tables: summary::tables(&config, &measurements, &rounds),
            verdicts: summary::verdicts(&config.demands, &measurements, &rounds),
            replies: summary::replies(&measurements),
            measurements,
        }
    }

    #[test]
    fn what_could_be_read_as_markup_is_escaped() {
        assert_eq!(escape("<a b=\"c\" d='e'>&amp;"), "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;amp;");
        let html = page(&comparison(), "iop-perf compare --gate 'a <= 1'");
        for raw in ["<machine>", "<1>", "<y>", "# <b>", "a <= 1"] {
            assert!(!html.contains(raw), "{raw}");
        }
        assert!(html.contains("a &lt;machine&gt;") && html.contains("&quot;&lt;y&gt;&quot; &amp; z"));
    }

    #[test]
    fn the_page_needs_nothing_from_anywhere() {
        let html = page(&comparison(), "iop-perf compare");
        for outside in ["src=", "href=", "http:", "https:", "url(", "@import", "<script"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }

    #[test]
    fn every_part_is_there() {
        let html = page(&comparison(), "iop-perf compare --json x");
        for part in [
            "1 of 1</span> required lines hold",
            "ours/nginx sat64 cpu &lt;= 0.75",
            "ours 0 of 3",
            "<h3>sat64</h3>",
            "sat64: first event of a stream",
            "sat64: CPU per event",
            "iop-perf compare --json x",
            "--concurrency 64 --requests 3200",
            "its file",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("Memory against streams"), "no load read memory");
    }

    #[test]
    fn memory_is_drawn_against_the_streams_of_each_load_that_reads_it() {
        let mut comparison = comparison();
        let mut table = comparison.tables[0].clone();
        for (scenario, streams, within) in [("idle2000", 2000, 40.0), ("idle500", 500, 16.0)] {
            table.scenario = scenario;
            table.concurrency = streams;
            table.rows[1].memory_whole_kib = Some([8.0 * 1024.0, within * 1024.0]);
            comparison.tables.push(table.clone());
        }
        let html = page(&comparison, "");
        assert!(html.contains("8 MiB at 0, 16 MiB at 500, 40 MiB at 2000"), "{html}");
    }

    #[test]
    fn a_subject_keeps_its_colour_and_the_provider_is_grey() {
        let mut comparison = comparison();
        assert_eq!(["direct", "ours", "nginx"].map(|name| colour(&comparison, name)), [6, 0, 1]);
        for name in ["a", "b", "c", "d", "e"] {
            comparison.subjects.push(Described { name: name.to_owned(), ..comparison.subjects[0].clone() });
        }
        assert_eq!(["d", "e"].map(|name| colour(&comparison, name)), [5, 7], "no other is grey");
    }
}
