//! One provider of three that answers nothing: what it takes with it is its own slots.

use std::{
    net::TcpListener,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use anyhow::ensure;
use iop_tests::{ProviderYaml, http};

use crate::support::{NODE, SOON, eventually, metric, site, start_node, yaml};

/// Slots of each provider.
const CAPACITY: usize = 4;
/// Clients that ask again and again beside those that the hung provider holds: as many as the other two have slots, and some
/// that always wait.
const CLIENTS: usize = 2 * CAPACITY + 2;
/// Answers that the group of two providers gives while they are counted.
const ANSWERS: usize = 240;
/// What the group with the hung provider must give in that time, of what the other one gives.
const SHARE: f64 = 0.8;

/// Clients of one model that each ask again as soon as they are answered, and what came of it.
#[derive(Default)]
struct Loop {
    answers: AtomicUsize,
    providers: Mutex<Vec<String>>,
}

// req: POL-2, POL-9, WIR-6
#[test]
fn one_hung_provider_of_three_leaves_the_other_two_their_full_throughput() -> anyhow::Result<()> {
    let site = site()?;
    // Connections are made, by the kernel, and that is all.
    let hung = TcpListener::bind("127.0.0.1:0")?;
    let hung_url = format!("http://{}/v1", hung.local_addr()?);
    let provider = site.provider(&[])?;
    let slots = u32::try_from(CAPACITY)?;
    let on = |id: &str, url: &str, model: &str| ProviderYaml {
        capacity: slots,
        ..ProviderYaml::new(id, NODE, url, model)
    };
    let url = provider.base_url();
    // All on one Node and one link. Five providers with the same slots: two and the hung one, and two by themselves.
    let config = [on("a", &url, "three"), on("b", &url, "three"), on("hung", &hung_url, "three")]
        .into_iter()
        .chain([on("c", &url, "two"), on("d", &url, "two")])
        .fold(yaml(), |yaml, provider| yaml.with(provider));
    let edge = site.edge(&config)?;
    let (_node, _) = start_node(&site, NODE, &edge.node)?;

    let held_by_hung =
        || metric(&edge, &format!("iop_edge_provider_in_flight{{node=\"{NODE}\",provider=\"hung\"}}"));
    let (three, two, over) = (Loop::default(), Loop::default(), AtomicBool::new(false));
    let (address, token) = (edge.http.as_str(), site.token());
    // Asks again and again; ends with `true` when the hung provider had it.
    let client = |model: &str, of: &Loop| -> anyhow::Result<bool> {
        loop {
            let answer = http::chat(address, token, &http::chat_body(model, true, "events=10 gap=5ms"))?;
            let by = answer.header("x-iop-provider").unwrap_or_default().to_owned();
            if by == "hung" {
                return Ok(true);
            }
            ensure!(answer.is_done() && answer.whole, "{}{}", answer.head, answer.text());
            of.providers.lock().expect("nobody panics with it").push(by);
            of.answers.fetch_add(1, SeqCst);
            if over.load(SeqCst) {
                return Ok(false);
            }
        }
    };
    let given = std::thread::scope(|scope| -> anyhow::Result<_> {
        let spawn = |model, of, count| -> Vec<_> {
            let client = &client;
            (0..count).map(|_| scope.spawn(move || client(model, of))).collect()
        };
        // More than the two have slots for: the hung one fills up for good, and then the same number is left to ask.
        let threads = [spawn("three", &three, CLIENTS + CAPACITY), spawn("two", &two, CLIENTS)];
        let counted = (|| {
            eventually(http::PATIENCE, "the hung one is full", || Ok(held_by_hung()? == CAPACITY as f64))?;
            let now = || (three.answers.load(SeqCst), two.answers.load(SeqCst));
            let before = now();
            eventually(http::PATIENCE, "the two have given their answers", || {
                Ok(now().1 >= before.1 + ANSWERS)
            })?;
            let after = now();
            ensure!(held_by_hung()? == CAPACITY as f64, "its slots are taken, and no more");
            Ok((after.0 - before.0, after.1 - before.1))
        })();
        over.store(true, SeqCst);
        let left = || threads.iter().flatten().filter(|thread| !thread.is_finished()).count();
        let ended = eventually(http::PATIENCE, "all but those that are held end", || Ok(left() <= CAPACITY));
        // Resets the connections that nobody took: who was held by it gets an error.
        drop(hung);
        let mut held = Vec::new();
        for threads in threads {
            let mut count = 0;
            for thread in threads {
                count += usize::from(thread.join().expect("a client does not panic")?);
            }
            held.push(count);
        }
        let given = counted?;
        ended?;
        ensure!(held == [CAPACITY, 0], "the hung provider had {held:?}");
        Ok(given)
    })?;
    println!("answers of two providers beside a hung one, and of two by themselves: {given:?}");
    assert!(given.0 as f64 >= SHARE * given.1 as f64, "{given:?}");
    let providers = three.providers.into_inner()?;
    for by in ["a", "b"] {
        let share = providers.iter().filter(|it| *it == by).count();
        assert!(share * 3 > providers.len(), "{by}: {share} of {}", providers.len());
    }
    eventually(SOON, "every slot is free", || Ok(metric(&edge, "iop_edge_leases")? == 0.0))
}
