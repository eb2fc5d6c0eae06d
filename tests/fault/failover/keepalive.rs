//! Streams that began with keep-alive before the first provider stalled: their head is out, their preamble is not (case 31).

use anyhow::ensure;

use super::{
    backend::{Act, Health, Point, SERVED},
    stand::{Case, Origin, Setup, Stand, asked, each, is_served_by},
    way::STREAMS,
};

fn setup() -> Setup {
    let openai = "  keepalive: { comment_ms: 100, event_ms: 300, tunnel: true }\n".to_owned();
    Setup { openai, ..Setup::default() }
}

// req: REC-2, API-2
#[test]
fn a_stream_that_has_begun_with_keep_alive_moves_on_and_says_so_at_its_end() -> anyhow::Result<()> {
    let stand = Stand::start(&setup(), super::stalls::cases(&STREAMS))?;
    each(stand.ask_all()?, |group, answer| {
        let [first, second] = group.backends.as_slice() else { anyhow::bail!("two providers") };
        is_served_by(group, 1, &answer, &Origin::new("exact_replay", &[&first.name, &second.name]))?;
        ensure!(asked(group) == [1, 1], "{:?}", asked(group));
        // Alive, then the other's words, and how it came about at the latest behind them.
        let text = answer.text();
        let alive = text.find(": ka\n").or_else(|| text.find("event: ping\n"));
        ensure!(alive.is_some() && alive < text.find(SERVED), "{text}");
        ensure!(text.matches(": iop ").count() == 1, "{text}");
        Ok(())
    })?;
    stand.balances()
}

// req: REC-2, API-1
#[test]
fn a_stream_that_has_begun_with_keep_alive_and_cannot_move_on_ends_in_an_error() -> anyhow::Result<()> {
    let stalls = vec![Act::Stall(Point::Preamble)];
    let cases = STREAMS.map(|way| Case::of(way, "stuck", vec![stalls.clone(), stalls.clone()]));
    let stand = Stand::start(&setup(), cases.into())?;
    stand.groups.iter().flat_map(|group| &group.backends).for_each(|backend| backend.is(Health::Unsaid));
    each(stand.ask_all()?, |group, answer| {
        ensure!(answer.status == 200 && !answer.is_done() || answer.text().contains("response.failed"));
        let errors = answer.text().matches("\"error\"").count();
        ensure!(errors >= 1, "{}", answer.text());
        ensure!(!answer.text().contains("drill-"), "{}", answer.text());
        ensure!(asked(group) == [1, 1], "{:?}", asked(group));
        Ok(())
    })?;
    stand.balances()
}
