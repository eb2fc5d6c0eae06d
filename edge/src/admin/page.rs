//! The status document for people: a few tables, of about a hundred columns with names of usual length.

use std::fmt::Write;

use super::table::Table;
use crate::ops::document::{ProviderLine, QueueLine, RunLine, Status};

/// Rows of the queue and of the runs that are shown: the oldest, which are the ones to look at.
const ROWS_MAX: usize = 20;
const SECOND_MS: u64 = 1000;
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The page. Parts with nothing in them are left out.
pub(super) fn render(status: &Status) -> String {
    let mut page = format!(
        "{} {}, configuration {}, {}\n{} waiting, {} running ({} being cancelled)\n",
        status.edge,
        status.version,
        status.config_generation,
        if status.draining { "draining" } else { "serving" },
        status.queued,
        status.leases,
        status.cancelling,
    );
    let (waiting, running) =
        (status.queue.iter().take(ROWS_MAX).map(waiting), status.runs.iter().take(ROWS_MAX).map(running));
    part(&mut page, nodes(status), 0);
    part(&mut page, providers(status), 0);
    part(&mut page, overlays(status), 0);
    let head = ["PLACE", "REQUEST", "MODEL", "AGE", "SENT", "WAITS FOR"];
    part(&mut page, Table::new(&head).with(waiting), status.queued);
    let head = ["LEASE", "REQUEST", "PROVIDER", "NODE", "AGE", "STATE"];
    part(&mut page, Table::new(&head).with(running), status.leases);
    page
}

/// Appends a table, and how many of `all` it does not show.
fn part(page: &mut String, table: Table, all: usize) {
    if table.rows() == 0 {
        return;
    }
    let _infallible = write!(page, "\n{}", table.render());
    if all > table.rows() {
        let _infallible = writeln!(page, "… and {} more", all - table.rows());
    }
}

fn nodes(status: &Status) -> Table {
    let row = |node: &crate::ops::document::NodeLine| {
        [node.id.clone(), node.state.clone(), node.state_ms.map_or_else(|| "-".to_owned(), age)]
    };
    Table::new(&["NODE", "STATE", "FOR"]).with(status.nodes.iter().map(row))
}

fn providers(status: &Status) -> Table {
    let rows = status.nodes.iter().flat_map(|node| {
        node.providers.iter().map(|it| {
            [
                it.id.clone(),
                node.id.clone(),
                it.status.clone(),
                slots(it, it.in_flight, it.capacity),
                slots(it, it.long_in_flight, it.long_context_capacity),
                it.queued.to_string(),
                it.reason.as_deref().map(why).unwrap_or_default().to_owned(),
            ]
        })
    });
    Table::new(&["PROVIDER", "NODE", "STATUS", "SLOTS", "LONG", "WAITING", "WHY"]).with(rows)
}

fn overlays(status: &Status) -> Table {
    let providers = status.nodes.iter().flat_map(|node| &node.providers);
    let rows = providers.filter_map(|it| {
        let overlay = it.overlay.as_ref()?;
        Some([
            it.id.clone(),
            age(overlay.since_ms),
            overlay.adapter.clone(),
            overlay.target.clone(),
            overlay.probes.to_string(),
            overlay.next_probe_ms.map_or_else(|| "-".to_owned(), |wait| format!("in {}", age(wait))),
        ])
    });
    Table::new(&["DOES NOT ANSWER", "FOR", "ADAPTER", "TARGET", "PROBES", "NEXT"]).with(rows)
}

fn waiting(it: &QueueLine) -> [String; 6] {
    let long = if it.long { " (long)" } else { "" };
    [
        it.position.to_string(),
        it.request.clone(),
        format!("{}{long}", it.model),
        age(it.age_ms),
        it.attempts.to_string(),
        if it.waits_for.is_empty() { "any provider to come".to_owned() } else { it.waits_for.join(", ") },
    ]
}

fn running(it: &RunLine) -> [String; 6] {
    let kind = match (it.direct, it.long) {
        (true, _) => " (direct)",
        (_, true) => " (long)",
        _ => "",
    };
    [
        it.lease.to_string(),
        it.request.clone(),
        format!("{}{kind}", it.provider),
        it.node.clone(),
        age(it.age_ms),
        it.state.clone(),
    ]
}

fn slots(provider: &ProviderLine, taken: u32, all: u32) -> String {
    if provider.reason.is_none() || taken > 0 { format!("{taken}/{all}") } else { "-".to_owned() }
}

fn why(reason: &str) -> &str {
    match reason {
        "disabled" => "disabled by the configuration",
        "node_disconnected" => "its node is not connected",
        "node_pending" => "its node is not ready yet",
        "node_draining" => "its node takes nothing new",
        "overlaid" => "does not answer, see below",
        // Of a later Edge.
        other => other,
    }
}

/// A time in its two largest units.
fn age(millis: u64) -> String {
    match millis / SECOND_MS {
        0..10 => format!("{}.{}s", millis / SECOND_MS, millis % SECOND_MS / 100),
        seconds @ 10..MINUTE => format!("{seconds}s"),
        seconds @ MINUTE..HOUR => format!("{}m{:02}s", seconds / MINUTE, seconds % MINUTE),
        seconds @ HOUR..DAY => format!("{}h{:02}m", seconds / HOUR, seconds % HOUR / MINUTE),
        seconds => format!("{}d{:02}h", seconds / DAY, seconds % DAY / HOUR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::document::{NodeLine, OverlayLine};

    fn provider(id: &str, reason: Option<&str>) -> ProviderLine {
        ProviderLine {
            id: id.into(),
            status: if reason.is_none() { "available" } else { "unavailable" }.into(),
            reason: reason.map(str::to_owned),
            ..ProviderLine::default()
        }
    }

    fn document() -> Status {
        let overlay = OverlayLine {
            since_ms: 74_000,
            adapter: "vllm-2".into(),
            target: "Qwen/Qwen3-32B".into(),
            probes: 4,
            next_probe_ms: Some(31_500),
        };
        let good = ProviderLine {
            capacity: 4,
            in_flight: 2,
            long_context_capacity: 1,
            queued: 3,
            ..provider("box1-vllm", None)
        };
        let out = ProviderLine { overlay: Some(overlay), ..provider("box1-other", Some("overlaid")) };
        let run = |lease: u64, direct, long| RunLine {
            lease,
            request: format!("0-{lease}"),
            node: "box1".into(),
            provider: "box1-vllm".into(),
            direct,
            long,
            age_ms: 950,
            state: "active".into(),
        };
        let waiter = |position| QueueLine {
            position,
            request: format!("1-{position}"),
            model: "qwen3".into(),
            long: position == 2,
            age_ms: 12_345,
            attempts: 0,
            waits_for: if position == 1 { vec!["box1-vllm".into()] } else { Vec::new() },
        };
        Status {
            edge: "edge-1".into(),
            version: "0.1.0".into(),
            config_generation: 1,
            draining: false,
            queued: 43,
            leases: 3,
            cancelling: 1,
            nodes: vec![
                NodeLine {
                    id: "box1".into(),
                    connected: true,
                    state: "ready".into(),
                    state_ms: Some(93_600_000),
                    providers: vec![good, out],
                },
                NodeLine {
                    id: "box2".into(),
                    state: "disconnected".into(),
                    providers: vec![provider("box2-ollama", Some("node_disconnected"))],
                    ..NodeLine::default()
                },
            ],
            queue: (1..=40).map(waiter).collect(),
            runs: vec![run(7, false, false), run(8, true, false), run(9, false, true)],
        }
    }

    #[test]
    fn the_page_says_what_runs_waits_and_is_out_in_columns() {
        let page = render(&document());
        let head = "edge-1 0.1.0, configuration 1, serving\n43 waiting, 3 running (1 being cancelled)\n\n\
                    NODE  STATE         FOR\nbox1  ready         1d02h\nbox2  disconnected  -\n\n";
        assert!(page.starts_with(head), "{page}");
        for line in [
            "PROVIDER     NODE  STATUS       SLOTS  LONG  WAITING  WHY",
            "box1-vllm    box1  available    2/4    0/1   3",
            "box1-other   box1  unavailable  -      -     0        does not answer, see below",
            "box2-ollama  box2  unavailable  -      -     0        its node is not connected",
            "DOES NOT ANSWER  FOR    ADAPTER  TARGET          PROBES  NEXT",
            "box1-other       1m14s  vllm-2   Qwen/Qwen3-32B  4       in 31s",
            "1      1-1      qwen3         12s  0     box1-vllm",
            "2      1-2      qwen3 (long)  12s  0     any provider to come",
            "… and 23 more",
            "8      0-8      box1-vllm (direct)  box1  0.9s  active",
            "9      0-9      box1-vllm (long)    box1  0.9s  active",
        ] {
            assert!(page.lines().any(|found| found == line), "no line {line:?} in\n{page}");
        }
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
        assert!(!page.contains("21 "), "the oldest alone are shown: {page}");
    }

    #[test]
    fn an_edge_without_anything_has_a_page_of_two_lines() {
        assert_eq!(render(&Status::default()).lines().count(), 2);
    }

    #[test]
    fn times_are_told_in_their_two_largest_units() {
        for (millis, text) in [
            (0, "0.0s"),
            (9_999, "9.9s"),
            (10_000, "10s"),
            (59_999, "59s"),
            (60_000, "1m00s"),
            (3_600_000, "1h00m"),
            (86_399_999, "23h59m"),
            (90_000_000, "1d01h"),
        ] {
            assert_eq!(age(millis), text);
        }
    }
}
