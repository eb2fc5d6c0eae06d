//! A machine with a clock and an oracle beside it, and configurations written as text.

use std::{sync::Arc, time::Duration};

use control::{
    Machine,
    config::{Capabilities, Group, Member, NodePolicy, PoolConfig, ProviderPolicy, Route},
    effect::{Effect, Snapshot},
    input::{Input, Moment},
};

use crate::oracle::Oracle;

/// Everything a test needs to drive one machine. Each step is followed by the audit and the oracle.
pub struct World {
    /// The machine.
    pub machine: Machine,
    pub oracle: Oracle,
    pub now: Moment,
}

impl World {
    pub fn new(config: &Arc<PoolConfig>) -> Self {
        Self {
            machine: Machine::new(Arc::clone(config)),
            oracle: Oracle::new(Arc::clone(config)),
            now: Moment(0),
        }
    }

    /// Tells one fact now and gives the effects.
    pub fn tell(&mut self, input: Input) -> Vec<Effect> {
        self.machine.handle(self.now, input.clone());
        let effects = self.drain();
        self.check(Some(&input), &effects);
        effects
    }

    /// Lets time pass as a punctual driver does: every timeout is handled at its moment.
    pub fn wait(&mut self, by: Duration) -> Vec<Effect> {
        let end = self.now.after(by);
        let mut effects = Vec::new();
        while let Some(at) = self.machine.poll_timeout().filter(|&at| at <= end) {
            self.now = at;
            self.machine.handle_timeout(at);
            let fired = self.drain();
            self.check(None, &fired);
            effects.extend(fired);
        }
        self.now = end;
        effects
    }

    /// Handles what is due now.
    pub fn timeout(&mut self) -> Vec<Effect> {
        self.machine.handle_timeout(self.now);
        let effects = self.drain();
        self.check(None, &effects);
        effects
    }

    /// The picture, asked for beside the oracle's books.
    pub fn snapshot(&mut self) -> Snapshot {
        self.machine.handle(self.now, Input::Inspect { token: 77, detail: false });
        match self.drain().pop() {
            Some(Effect::Snapshot { token: 77, snapshot }) => snapshot,
            other => panic!("no snapshot: {other:?}"),
        }
    }

    fn drain(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.machine.poll_effect()).collect()
    }

    fn check(&mut self, input: Option<&Input>, effects: &[Effect]) {
        assert_eq!(self.machine.audit(), Ok(()), "after {input:?}");
        let snapshot = self.snapshot();
        self.oracle.step(self.now, input, effects);
        self.oracle.compare(&snapshot, self.machine.counters());
        let next = self.machine.poll_timeout();
        assert!(next.is_none_or(|at| at > self.now), "I15: a deadline is in the past");
    }
}

/// A configuration from text; one statement a line:
///
/// ```text
/// queue 16 30s                 bound and timeout (`none` = none)
/// node n1 p1 p2:cap=2,long=1   also prio=, needs= (capability bits, default 1), off
/// node n2 p3 +b                an adapter without a provider
/// route x b t a                model, adapter, target, attribution id
/// group m p1 p2                targets are `m@p1`, `m@p2`
/// ```
pub fn pool(text: &str) -> Arc<PoolConfig> {
    let mut config = PoolConfig {
        generation: 1,
        queue_max: 16,
        queue_timeout: Some(seconds(30)),
        ..PoolConfig::default()
    };
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["queue", max, timeout] => {
                config.queue_max = max.parse().unwrap();
                config.queue_timeout = (timeout != "none").then(|| duration(timeout));
            }
            ["generation", number] => config.generation = number.parse().unwrap(),
            ["node", id, ref providers @ ..] => {
                let (extra, providers): (Vec<&str>, Vec<&str>) =
                    providers.iter().partition(|text| text.starts_with('+'));
                let providers = providers.iter().map(|text| provider(text)).collect();
                let providers: Vec<ProviderPolicy> = providers;
                let extra = extra.iter().map(|text| text[1..].into());
                let adapters = providers.iter().map(|policy| policy.adapter.clone()).chain(extra).collect();
                config.nodes.push(NodePolicy { id: id.into(), providers, adapters });
            }
            ["route", model, adapter, target, attribution] => config.routes.push(Route {
                model: model.into(),
                adapter: adapter.into(),
                target: target.into(),
                provider: attribution.into(),
                stall_timeout: seconds(100),
                request_timeout: seconds(200),
            }),
            ["group", id, ref members @ ..] => {
                let member = |&p: &&str| Member { provider: p.into(), target: format!("{id}@{p}").into() };
                config.groups.push(Group { id: id.into(), members: members.iter().map(member).collect() });
            }
            _ => panic!("cannot read {line:?}"),
        }
    }
    Arc::new(config)
}

fn provider(text: &str) -> ProviderPolicy {
    let (id, settings) = text.split_once(':').unwrap_or((text, ""));
    let mut policy = ProviderPolicy {
        id: id.into(),
        adapter: format!("{id}-adapter").into(),
        enabled: true,
        capacity: 1,
        long_capacity: u32::MAX,
        priority: 0,
        capabilities: Capabilities(1),
        stall_timeout: seconds(300),
        request_timeout: seconds(600),
    };
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let (key, value) = setting.split_once('=').unwrap_or((setting, "0"));
        let value: u32 = value.parse().unwrap();
        match key {
            "cap" => policy.capacity = value,
            "long" => policy.long_capacity = value,
            "prio" => policy.priority = value,
            "needs" => policy.capabilities = Capabilities(value),
            "off" => policy.enabled = false,
            _ => panic!("cannot read {setting:?}"),
        }
    }
    policy.long_capacity = policy.long_capacity.min(policy.capacity);
    policy
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// `30s` or `250ms`.
pub fn duration(text: &str) -> Duration {
    match text.strip_suffix("ms") {
        Some(number) => Duration::from_millis(number.parse().unwrap()),
        None => seconds(text.strip_suffix('s').unwrap().parse().unwrap()),
    }
}
