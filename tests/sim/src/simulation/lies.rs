//! What a Node says that does not keep to the protocol, or to the truth.

use std::{collections::BTreeMap, sync::Arc};

use control::input::{CommandId, LeaseId};
use proto::message::{ErrorKind, ExecutionError, ExecutionFailure};

use super::{Simulation, links::Up, nodes::Kind};

/// A frame that a liar may twist.
#[derive(Clone, Debug)]
pub(super) enum Lie {
    /// The last: adapter and served model of the run.
    Terminal {
        lease: LeaseId,
        error: Option<ExecutionError>,
        sequence: u64,
        of: Option<(Arc<str>, Arc<str>)>,
    },
    Answer {
        command: CommandId,
        adapter: Arc<str>,
        target: Arc<str>,
    },
}

/// Evidence of a stall, as it should be (STL-5).
pub(super) fn stall(
    pair: (&str, &str),
    adapter: &str,
    target: &str,
    fence: &str,
    number: &str,
) -> ExecutionError {
    let said = [
        ("provider_health", pair.0),
        ("liveness_classification", pair.1),
        ("adapter", adapter),
        ("target", target),
        ("fence", fence),
        ("health_observation_seq", number),
    ];
    let metadata = said.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let failure_code = "response_stalled".to_owned();
    let failure = Some(ExecutionFailure { failure_code, retryable: true, metadata });
    ExecutionError { kind: ErrorKind::Stalled, message: String::new(), failure }
}

impl Simulation {
    /// Says something like it, or something else.
    pub(super) fn lie(&mut self, index: usize, lie: Lie) {
        let Some(link) = self.nodes[index].link else { return };
        match lie {
            Lie::Terminal { lease, error, sequence, of } => {
                let twisted = match self.rng.below(6) {
                    0 => error,
                    1 => {
                        Some(ExecutionError { kind: ErrorKind::Busy, message: String::new(), failure: None })
                    }
                    2 => None,
                    _ => Some(self.twisted_stall(index, of)),
                };
                let sequence = if self.rng.chance(0.3) { self.rng.below(3) } else { sequence };
                self.send_up(link, Up::Terminal { lease, error: twisted.clone(), sequence });
                if self.rng.chance(0.3) {
                    // Twice; a real Edge has forgotten the stream, the machine must not need it to.
                    self.send_up(link, Up::Forged { lease, error: twisted, sequence });
                }
            }
            Lie::Answer { command, adapter, target } => {
                let result = self.twisted_answer(index, &adapter, &target);
                self.send_up(link, Up::Answer { command, result: result.clone() });
                if self.rng.chance(0.2) {
                    self.send_up(link, Up::Answer { command, result });
                }
            }
        }
    }

    /// Something out of the blue.
    pub(super) fn babble(&mut self, index: usize) {
        let name = Arc::clone(&self.nodes[index].name);
        let Some(link) = self.nodes[index].link else { return };
        match self.rng.below(12) {
            0 => self.send_up(link, Up::Register { claimed: name, token_ok: true }),
            1 => self.send_up(link, Up::Register { claimed: "n0".into(), token_ok: true }),
            2 => self.send_up(link, Up::Ready { claimed: name }),
            3 => self.send_up(link, Up::Ready { claimed: "n0".into() }),
            4 => self.send_up(link, Up::Draining),
            5 => {
                // A second connection beside the first, which it goes on using.
                let second = self.connect(index);
                self.send_up(second, Up::Register { claimed: Arc::clone(&name), token_ok: true });
                self.send_up(second, Up::Ready { claimed: name });
            }
            6 => {
                // On an old connection that the Edge may not have noticed to be over.
                let old = self.links.len().saturating_sub(1 + self.rng.below(8) as usize);
                let (node, open) = (self.links[old].node, !self.links[old].is_gone());
                if open && node == index {
                    self.send_up(old, Up::Ready { claimed: name });
                }
            }
            7 | 8 => {
                if let Some(lease) = self.some_lease() {
                    let error = self.rng.chance(0.7).then(|| self.twisted_stall(index, None));
                    self.send_up(link, Up::Forged { lease, error, sequence: 0 });
                }
            }
            _ => {
                let recent = self.probes.len().min(4) as u64;
                if recent > 0 {
                    let probe = self.probes[self.probes.len() - 1 - self.rng.below(recent) as usize].clone();
                    let result = self.twisted_answer(index, &probe.adapter, &probe.target);
                    self.send_up(link, Up::Answer { command: probe.command, result });
                }
            }
        }
    }

    /// A liar answers a command that another connection was sent, as the one who was asked would.
    pub(super) fn answer_for_another(&mut self, probe: &control::effect::Probe) {
        let index = self.rng.index(self.nodes.len());
        let liar = &self.nodes[index];
        let Some(link) = liar.link.filter(|_| liar.kind == Kind::Byzantine) else { return };
        if !self.rng.chance(0.3) {
            return;
        }
        let number = (self.nodes[index].last_observation() + 1_000).to_string();
        let said = [
            ("adapter_key", &*probe.adapter),
            ("target", &*probe.target),
            ("provider_status", "available"),
            ("health_observation_seq", &number),
        ];
        let said = said.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        self.send_up(link, Up::Answer { command: probe.command, result: Ok(said) });
    }

    /// Of anybody.
    fn some_lease(&mut self) -> Option<LeaseId> {
        let (first, last) = (self.holds.first_key_value()?.0.0, self.holds.last_key_value()?.0.0);
        Some(LeaseId(self.rng.range(first, last + 1)))
    }

    fn some_adapter(&mut self) -> Arc<str> {
        (*self.rng.pick(&super::nodes::ADAPTERS)).into()
    }

    fn some_target(&mut self) -> Arc<str> {
        let config = Arc::clone(&self.config);
        let groups: Vec<_> = config.groups.iter().filter(|group| !group.members.is_empty()).collect();
        if groups.is_empty() {
            return "nothing".into();
        }
        let group = *self.rng.pick(&groups);
        Arc::clone(&self.rng.pick(&group.members).target)
    }

    fn some_number(&mut self, index: usize) -> String {
        match self.rng.below(16) {
            0 => "0".to_owned(),
            1 => "-1".to_owned(),
            2 => "x".to_owned(),
            3 => "007".to_owned(),
            4 => String::new(),
            5 => u64::MAX.to_string(),
            6 => "18446744073709551616".to_owned(),
            7 => "1".to_owned(),
            // What it said last, once more.
            8..=10 => self.nodes[index].reported.clone(),
            11 => (self.nodes[index].last_observation() + 100).to_string(),
            // The number of what it observed last, if that was a probe's answer, too.
            12 => self.nodes[index].last_observation().to_string(),
            _ => self.observe(index).to_string(),
        }
    }

    fn twisted_stall(&mut self, index: usize, of: Option<(Arc<str>, Arc<str>)>) -> ExecutionError {
        let pair = *self.rng.pick(&[
            ("unavailable", "provider_unhealthy"),
            ("unavailable", "provider_unhealthy"),
            ("available", "request_stalled"),
            ("unknown", "health_unknown"),
            ("unavailable", "request_stalled"),
            ("", ""),
        ]);
        let number = self.some_number(index);
        let (adapter, target) = match of {
            Some(of) if self.rng.chance(0.7) => of,
            _ => (self.some_adapter(), self.some_target()),
        };
        if pair.0 == "unavailable" {
            self.nodes[index].reported.clone_from(&number);
        }
        let mut error = stall(pair, &adapter, &target, "confirmed", &number);
        if self.rng.chance(0.1) {
            error.kind = ErrorKind::Deadline;
        }
        if let Some(failure) = error.failure.as_mut().filter(|_| self.rng.chance(0.1)) {
            failure.failure_code = "stalled".to_owned();
        }
        if self.rng.chance(0.1) {
            error.failure = None;
        }
        error
    }

    fn twisted_answer(
        &mut self,
        index: usize,
        adapter: &str,
        target: &str,
    ) -> Result<BTreeMap<String, String>, String> {
        if self.rng.chance(0.1) {
            return Err("no".to_owned());
        }
        let (other_adapter, other_target) = (self.some_adapter(), self.some_target());
        let adapter = if self.rng.chance(0.2) { &*other_adapter } else { adapter };
        let target = if self.rng.chance(0.2) { &*other_target } else { target };
        let status = *self.rng.pick(&[
            "available",
            "available",
            "available",
            "unavailable",
            "unknown",
            "AVAILABLE",
            "",
        ]);
        let number = self.some_number(index);
        let said = [
            ("adapter_key", adapter),
            ("target", target),
            ("provider_status", status),
            ("health_observation_seq", &number),
        ];
        let left_out = self.rng.below(20) as usize;
        let said = said.into_iter().enumerate().filter(|(place, _)| *place != left_out);
        Ok(said.map(|(_, (key, value))| (key.to_owned(), value.to_owned())).collect())
    }
}
