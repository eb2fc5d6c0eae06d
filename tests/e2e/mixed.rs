//! A model that is served by a tunnel and by normalized runs: the type of a provider chooses the path, and nothing else.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::ensure;
use iop_tests::{
    Edge, ProviderYaml,
    http::{self, PATIENCE, Raw},
    ollama::Ollama,
    random::Random,
};

use crate::support::{NODE, is_matrix_only, metric, site, start_node, yaml};

/// The model, by the name that both servers know.
const MODEL: &str = "plain";
/// Requests, streams and others in turns.
const REQUESTS: usize = 1000;
/// Where a setting is all that differs from the run that has them all.
const FEWER: usize = 100;
/// Slots of the tunnel's provider, and of the other.
const CAPACITIES: [usize; 2] = [3, 4];
const SLOTS: usize = CAPACITIES[0] + CAPACITIES[1];

/// What the rule knows of a provider (POL-2).
struct Standing {
    id: &'static str,
    capacity: usize,
    priority: u32,
    in_flight: usize,
    last_grant: usize,
    server: Ollama,
    grants: usize,
}

/// A request that has been dispatched and waits at its provider's gate.
struct Open {
    client: Raw,
    provider: usize,
    stream: bool,
}

/// The rule, written a second time: of those that have a slot, the one with the fewest requests, then with the lowest priority
/// number, then the one whose last turn is longest ago.
fn chosen(providers: &[Standing]) -> Option<usize> {
    let open = providers.iter().enumerate().filter(|(_, p)| p.in_flight < p.capacity);
    open.min_by_key(|(_, p)| (p.in_flight, p.priority, p.last_grant)).map(|(index, _)| index)
}

/// Asks often: there are many steps, and each is soon done.
fn until(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn leases(edge: &Edge) -> anyhow::Result<f64> {
    metric(edge, "iop_edge_leases")
}

/// How many each provider had.
type Counts = BTreeMap<&'static str, usize>;

/// Serves `requests`, at most `together` at a time, each by the provider that the rule says.
fn serve(priorities: [u32; 2], requests: usize, together: usize, seed: u64) -> anyhow::Result<Counts> {
    let site = site()?;
    let provider = |id, capacity, priority| -> anyhow::Result<Standing> {
        let server = Ollama::start()?;
        server.hold();
        Ok(Standing { id, capacity, priority, in_flight: 0, last_grant: 0, server, grants: 0 })
    };
    let mut providers =
        [provider("tunnel", CAPACITIES[0], priorities[0])?, provider("run", CAPACITIES[1], priorities[1])?];
    let mut tunnel = ProviderYaml::new("tunnel", NODE, &providers[0].server.openai_url(), MODEL);
    let mut run = ProviderYaml::ollama("run", NODE, &providers[1].server.url(), &[MODEL]);
    for (yaml, provider) in [(&mut tunnel, &providers[0]), (&mut run, &providers[1])] {
        yaml.capacity = u32::try_from(provider.capacity)?;
        yaml.extra = format!("priority: {}", provider.priority);
    }
    let edge = site.edge(&yaml().with(tunnel).with(run))?;
    let (_node, _) = start_node(&site, NODE, &edge.node)?;

    let mut random = Random::new(seed);
    let (mut open, mut sent): (Vec<Open>, usize) = (Vec::new(), 0);
    while sent < requests || !open.is_empty() {
        let more = sent < requests && open.len() < together;
        if more && (open.is_empty() || random.within(0..5) < 3) {
            let index = chosen(&providers).expect("a slot is free");
            let stream = sent % 2 == 0;
            let mut client = Raw::connect(&edge.http)?;
            client.send(http::chat_request(site.token(), &http::chat_body(MODEL, stream, "")))?;
            let arrived =
                |providers: &[Standing]| providers.iter().map(|p| p.server.waiting()).sum::<usize>();
            until("it arrives", || Ok(arrived(&providers) > open.len()))?;
            sent += 1;
            let chosen = &mut providers[index];
            chosen.in_flight += 1;
            chosen.grants += 1;
            chosen.last_grant = sent;
            let found = providers.each_ref().map(|p| p.server.waiting());
            let expected = providers.each_ref().map(|p| p.in_flight);
            ensure!(found == expected, "request {sent}, seed {seed}: {expected:?} expected, {found:?} came");
            open.push(Open { client, provider: index, stream });
        } else {
            let ended = usize::try_from(random.within(0..open.len() as u64))?;
            let place = open[..ended].iter().filter(|it| it.provider == open[ended].provider).count();
            let Open { mut client, provider, stream } = open.remove(ended);
            providers[provider].server.let_go(place);
            let answer = client.answer()?;
            let by = answer.header("x-iop-provider");
            ensure!(answer.status == 200 && answer.whole, "{}{}", answer.head, answer.text());
            ensure!(by == Some(providers[provider].id), "{}", answer.head);
            ensure!(answer.is_done() == stream && answer.text().contains("Hello"), "{}", answer.text());
            providers[provider].in_flight -= 1;
            until("its slot is back", || Ok(leases(&edge)? == open.len() as f64))?;
        }
    }
    // The type alone chose the path.
    assert!(providers[0].server.asked().is_empty(), "a run at the tunnel's provider");
    assert_eq!(providers[1].server.asked().len(), providers[1].grants);
    assert_eq!(providers[1].server.refused(), [""; 0]);
    Ok(providers.iter().map(|p| (p.id, p.grants)).collect())
}

// req: POL-7, POL-2
#[test]
fn a_tunnel_and_an_ollama_run_share_a_model_by_load_and_turns() -> anyhow::Result<()> {
    let requests = if is_matrix_only() { FEWER } else { REQUESTS };
    // As many as there are slots: each request goes where the rule says, whoever of the two has less to do at that moment.
    let counts = serve([0, 0], requests, SLOTS, 7)?;
    println!("{SLOTS} together: {counts:?}");
    assert_eq!(counts.values().sum::<usize>(), requests);
    assert!(counts.values().all(|count| *count * 3 > requests), "{counts:?}");
    // One at a time: they take turns.
    assert_eq!(serve([0, 0], FEWER, 1, 7)?, [("run", FEWER / 2), ("tunnel", FEWER / 2)].into());
    Ok(())
}

// req: POL-7, POL-2
#[test]
fn a_lower_priority_number_wins_the_ties_whichever_path_it_means() -> anyhow::Result<()> {
    for (priorities, all, none) in [([1, 0], "run", "tunnel"), ([0, 1], "tunnel", "run")] {
        // Each finds both idle.
        assert_eq!(serve(priorities, FEWER, 1, 11)?, [(all, FEWER), (none, 0)].into());
        let counts = serve(priorities, FEWER, SLOTS, 11)?;
        println!("{all} is preferred: {counts:?}");
    }
    Ok(())
}
