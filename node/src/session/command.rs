//! Answers to the Edge's queries (CMD-1). Pure.

use std::collections::BTreeMap;

use proto::message::{NodeCommandRequest, NodeCommandResponse};

/// What the `transport` command tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportStatus {
    /// Executions that have not ended.
    pub runs: usize,
    /// Adapter instances that can be used.
    pub adapters_usable: usize,
    /// All adapter instances.
    pub adapters: usize,
    /// Generation of the configuration in force.
    pub config_generation: u64,
    /// The Node takes no new work.
    pub draining: bool,
}

/// Answers one command.
#[must_use]
pub fn answer(request: &NodeCommandRequest, status: TransportStatus) -> NodeCommandResponse {
    let result = match request.command.as_str() {
        "transport" => Ok(transport(status)),
        "capabilities" | "ollama" => {
            Err(format!("the command {} is not available in this release", request.command))
        }
        _ => Err("unknown command; known are capabilities, transport, ollama".to_owned()),
    };
    NodeCommandResponse { request_id: request.request_id, result }
}

fn transport(status: TransportStatus) -> BTreeMap<String, String> {
    let state = if status.draining { "draining" } else { "ready" };
    [
        ("status", state.to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("runs_in_flight", status.runs.to_string()),
        ("adapters", status.adapters.to_string()),
        ("adapters_usable", status.adapters_usable.to_string()),
        ("config_generation", status.config_generation.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(command: &str) -> NodeCommandResponse {
        let request = NodeCommandRequest {
            request_id: 9,
            command: command.to_owned(),
            adapter: String::new(),
            target: String::new(),
            arguments: BTreeMap::new(),
            credential: None,
        };
        let status = TransportStatus {
            runs: 2,
            adapters_usable: 1,
            adapters: 2,
            config_generation: 5,
            draining: false,
        };
        answer(&request, status)
    }

    // req: CMD-1
    #[test]
    fn transport_is_answered_and_anything_outside_the_closed_set_is_refused() {
        let told = ask("transport");
        assert_eq!(told.request_id, 9);
        let told = told.result.unwrap();
        assert_eq!((told["status"].as_str(), told["runs_in_flight"].as_str()), ("ready", "2"));
        for (command, words) in [
            ("capabilities", "not available in this release"),
            ("ollama", "not available in this release"),
            ("shell", "unknown command"),
            ("", "unknown command"),
        ] {
            assert!(ask(command).result.unwrap_err().contains(words), "{command}");
        }
    }
}
