//! Clients in front of an Ollama server, by normalized runs: the newest `openai` SDK against the played server, which was
//! written from what is known of Ollama's API and not from the adapter.

use std::{collections::BTreeSet, io::Read};

use iop_tests::{
    Edge, Process, ProviderYaml, Site,
    http::{self, Raw},
    ollama::{Ollama, models::MODELS},
};
use serde_json::{Value, json};

use crate::{
    sdk::{python, run},
    support::{NODE, SOON, eventually, metric, node_metric, site, start_node, yaml},
};

/// A model that the configuration has and the server has not.
const ABSENT: &str = "absent";

/// Edge and Node in front of a played server with all its models.
struct Stand {
    server: Ollama,
    edge: Edge,
    _node: Process,
    node_ops: String,
    site: Site,
}

impl Stand {
    fn start() -> anyhow::Result<Self> {
        let (site, server) = (site()?, Ollama::start()?);
        let models: Vec<_> = MODELS.iter().map(|model| model.name).chain([ABSENT]).collect();
        let provider =
            ProviderYaml { capacity: 16, ..ProviderYaml::ollama("o1", NODE, &server.url(), &models) };
        let edge = site.edge(&yaml().with(provider))?;
        let (node, node_ops) = start_node(&site, NODE, &edge.node)?;
        Ok(Self { server, edge, _node: node, node_ops, site })
    }

    /// What was asked of one model.
    fn asked(&self, model: &str) -> Vec<Value> {
        self.server.asked().into_iter().filter(|body| body["model"] == model).collect()
    }
}

// req: RUN-3, RUN-4, RUN-6, POL-7
#[test]
fn the_openai_sdk_runs_its_tool_loops_reasoning_and_schemas_against_ollama() -> anyhow::Result<()> {
    let Some(python) = python()? else { return Ok(()) };
    let stand = Stand::start()?;
    let checks = run(&python, "sdk/ollama_client.py", &stand.edge.http, &[stand.site.token()]);
    // First what came at the other end: it says more.
    assert_eq!(stand.server.refused(), [""; 0], "requests that no server of this kind takes");
    checks?;
    asks_as_the_client_did(&stand);
    eventually(SOON, "every slot is free", || Ok(metric(&stand.edge, "iop_edge_leases")? == 0.0))
}

/// What clients set has reached the server under its names, and nothing has that they did not set.
fn asks_as_the_client_did(stand: &Stand) {
    let whole = stand.asked("plain").into_iter().find(|body| body["messages"][0]["role"] == "system");
    let whole = whole.expect("the developer's message is the system's");
    // What stands first of two limits that mean the same; numbers as they were.
    let options = json!({
        "num_predict": 50, "temperature": 0.5, "top_p": 0.9, "stop": ["END"], "seed": 4, "presence_penalty": 0.1,
        "frequency_penalty": 0.2, "top_k": 30, "min_p": 0.05,
    });
    assert_eq!(whole["options"], options);
    for body in stand.server.asked() {
        assert_eq!(body["stream"], true, "{body}");
        assert!(body["options"]["num_ctx"].is_null(), "another window reloads the model: {body}");
        assert!(body["keep_alive"].is_null(), "{body}");
    }
    let thoughts: BTreeSet<_> = stand.asked("thinker").iter().map(|body| body["think"].to_string()).collect();
    assert_eq!(thoughts, ["\"high\"", "\"low\"", "\"medium\"", "false", "null"].map(str::to_owned).into());
    let remembered = |body: &Value| body["messages"][1]["thinking"] == "Two times seven…";
    assert!(stand.asked("thinker").iter().any(remembered), "an assistant's thoughts are its own");
    // The verdict on a model without tools is kept: it was asked with them once.
    let with_tools = stand.asked("no-tools").iter().filter(|body| !body["tools"].is_null()).count();
    assert_eq!(with_tools, 1, "the refusal is remembered");
}

/// Clients whose answers have begun and do not end.
fn endless(stand: &Stand, count: usize) -> anyhow::Result<Vec<Raw>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        let mut client = Raw::connect(&stand.edge.http)?;
        client.send(http::chat_request(stand.site.token(), &http::chat_body("endless", true, "")))?;
        client.wait_for("on ")?;
        clients.push(client);
    }
    Ok(clients)
}

// req: CAN-1, RUN-1
#[test]
fn a_client_that_leaves_a_run_stops_that_one_at_its_server() -> anyhow::Result<()> {
    let stand = Stand::start()?;
    let mut clients = endless(&stand, 3)?;
    drop(clients.remove(1));
    eventually(SOON, "one is stopped", || Ok(stand.server.left() == 1))?;
    eventually(SOON, "its slot is free", || Ok(metric(&stand.edge, "iop_edge_leases")? == 2.0))?;
    for client in &mut clients {
        // They go on: more comes than was there.
        client.stream.read_exact(&mut vec![0; 16 * 1024])?;
    }
    assert_eq!(stand.server.left(), 1);
    drop(clients);
    eventually(SOON, "all are stopped", || Ok(stand.server.left() == 3))?;
    eventually(SOON, "every slot is free", || Ok(metric(&stand.edge, "iop_edge_leases")? == 0.0))
}

// req: PRE-2
#[test]
fn a_node_that_loses_its_edge_stops_every_run_at_its_server() -> anyhow::Result<()> {
    let mut stand = Stand::start()?;
    let clients = endless(&stand, 3)?;
    stand.edge.process.kill();
    eventually(SOON, "all are stopped", || Ok(stand.server.left() == clients.len()))?;
    let runs = || node_metric(&stand.node_ops, "iop_node_runs_in_flight");
    eventually(SOON, "the node is free", || Ok(runs()? == 0.0))
}
