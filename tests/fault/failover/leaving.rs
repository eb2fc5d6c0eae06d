//! Clients that leave while their requests are on their way to another provider (case 14).

use anyhow::ensure;
use iop_tests::{
    bench::{SOON, eventually},
    http::PATIENCE,
};
use serde_json::json;

use super::{
    backend::{Act, Point},
    stand::{Case, Group, Origin, STALL, Setup, Stand, asked, is_served_by},
    way::WAYS,
};

/// A stall that takes long enough for a second request to come in the meantime.
pub(super) fn slow() -> Setup {
    Setup { stall: 4 * STALL, ..Setup::default() }
}

/// The provider of this index has been asked.
pub(super) fn comes_to(group: &Group, index: usize) -> anyhow::Result<()> {
    eventually(PATIENCE, &group.case.name, || Ok(asked(group)[index] == 1))
}

/// One request of each group waits for a slot.
pub(super) fn wait(stand: &Stand) -> anyhow::Result<()> {
    let all = stand.groups.len() as f64;
    eventually(PATIENCE, "they wait", || Ok(stand.metric("iop_edge_queued")? == all))
}

// req: REC-5, POL-10
#[test]
fn a_client_that_leaves_while_its_request_moves_on_starts_nothing_any_more() -> anyhow::Result<()> {
    let stalls = vec![Act::Stall(Point::Silent), Act::Serve];
    let cases = WAYS.map(|way| Case::of(way, "left", vec![stalls.clone(), vec![Act::Held, Act::Serve]]));
    let stand = Stand::start(&slow(), cases.into())?;
    let (mut leave, mut stay) = (Vec::new(), Vec::new());
    for group in &stand.groups {
        leave.push(stand.begin(group, &json!({}))?);
        comes_to(group, 0)?;
        stay.push(stand.begin(group, &json!({}))?);
        comes_to(group, 1)?;
    }
    wait(&stand)?;
    drop(leave);
    eventually(SOON, "nobody waits", || Ok(stand.metric("iop_edge_queued")? == 0.0))?;
    for (group, mut client) in stand.groups.iter().zip(stay) {
        let [first, second] = group.backends.as_slice() else { anyhow::bail!("two providers") };
        second.lets_go();
        is_served_by(group, 1, &client.answer()?, &Origin::new("", &[&second.name]))?;
        ensure!(asked(group) == [1, 1], "{:?}", asked(group));
        // Nothing is left of it: the first is as good as before.
        let answer = stand.ask(group, &json!({}))?;
        is_served_by(group, 0, &answer, &Origin::new("", &[&first.name]))?;
    }
    stand.balances()?;
    assert_eq!(stand.sum("iop_edge_requests_total{outcome=\"client_gone\"")?, WAYS.len() as f64);
    assert_eq!(stand.results("exact_replay", "abandoned")?, WAYS.len() as f64);
    assert_eq!(stand.results("exact_replay", "recovered")?, 0.0);
    Ok(())
}
