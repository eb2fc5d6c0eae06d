//! The loads under which subjects are compared. `docs/performance.md` says what each shows, and a test that it says so of
//! these.

use std::time::Duration;

use crate::load::{self, Length};

/// What the cost of a scenario is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Events of streams.
    Event,
    /// Whole requests.
    Request,
}

impl Unit {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Request => "request",
        }
    }
}

/// One load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// What its cost is divided by.
    pub unit: Unit,
    /// Requests in flight.
    concurrency: usize,
    /// Requests of a round.
    requests: u64,
    /// The provider's script.
    script: &'static str,
    /// Whether streams are asked for.
    stream: bool,
    /// Whether a connection serves more than one request.
    keep_alive: bool,
    /// The workers start evenly within this time.
    stagger: Duration,
    /// When memory is read within the run. The subject is then started anew for it, because memory that a process once
    /// took it often keeps.
    pub memory_at: Option<Duration>,
}

const STREAMS: Scenario = Scenario {
    name: "",
    shows: "",
    unit: Unit::Event,
    concurrency: 64,
    requests: 3200,
    script: "events=200",
    stream: true,
    keep_alive: true,
    stagger: Duration::ZERO,
    memory_at: None,
};
const REPLIES: Scenario =
    Scenario { unit: Unit::Request, requests: 10_000, script: "events=30", stream: false, ..STREAMS };
const IDLE: Scenario = Scenario {
    shows: "Memory of a silent stream.",
    concurrency: 1000,
    requests: 1000,
    script: "prefill=8s events=1",
    memory_at: Some(Duration::from_secs(5)),
    ..STREAMS
};

/// All of them.
pub const SCENARIOS: [Scenario; 11] = [
    Scenario {
        name: "paced200",
        shows: "The cost of a lone token.",
        concurrency: 200,
        requests: 200,
        script: "events=100 gap=20ms stamp",
        stagger: Duration::from_millis(20),
        ..STREAMS
    },
    // The two have the same number of events a second, spread over few streams and over many.
    Scenario {
        name: "paced64",
        shows: "An event at 64 streams that together send 10,000 a second.",
        concurrency: 64,
        requests: 64,
        script: "events=780 gap=6400us",
        stagger: Duration::from_millis(6),
        ..STREAMS
    },
    Scenario {
        name: "paced1000",
        shows: "An event at 1,000 streams that together send 10,000 a second; the first event of many.",
        concurrency: 1000,
        requests: 1000,
        script: "events=50 gap=100ms",
        stagger: Duration::from_millis(100),
        ..STREAMS
    },
    Scenario { name: "sat64", shows: "Throughput, batching.", ..STREAMS },
    Scenario { name: "sat512", shows: "The same with many streams.", concurrency: 512, ..STREAMS },
    Scenario {
        name: "prefill1000",
        shows: "Many silent streams that start to speak at once.",
        concurrency: 1000,
        requests: 1000,
        script: "prefill=5s events=100",
        ..STREAMS
    },
    Scenario { name: "short", shows: "The cost of a request.", ..REPLIES },
    Scenario {
        name: "newconn",
        shows: "The cost of a request and its connection.",
        requests: 4000,
        keep_alive: false,
        ..REPLIES
    },
    Scenario { name: "idle500", concurrency: 500, requests: 500, ..IDLE },
    Scenario { name: "idle", ..IDLE },
    Scenario { name: "idle2000", concurrency: 2000, requests: 2000, ..IDLE },
];

/// Those of a comparison where nothing else is asked for.
pub const USUAL: [&str; 2] = ["paced200", "sat64"];

impl Scenario {
    /// The scenario of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        SCENARIOS.into_iter().find(|scenario| scenario.name == name)
    }

    /// Streams or requests in flight.
    #[must_use]
    pub fn concurrency(self) -> usize {
        self.concurrency
    }

    /// Whether its events carry their sending time.
    #[must_use]
    pub fn is_stamped(self) -> bool {
        self.script.split_ascii_whitespace().any(|word| word == "stamp")
    }

    /// The load of one round, but for where it goes.
    #[must_use]
    pub fn load(self) -> load::Config {
        load::Config {
            concurrency: self.concurrency,
            length: Length::Requests(self.requests),
            // Fills the subject's pool of connections to the provider; what the idle scenario measures it would spoil.
            warmup_requests: if self.memory_at.is_some() { 0 } else { self.concurrency as u64 },
            stream: self.stream,
            script: Some(self.script.to_owned()),
            keep_alive: self.keep_alive,
            stagger: self.stagger,
            memory_at: self.memory_at,
            ..load::Config::default()
        }
    }

    /// What `iop-perf load` has to be told for a round of it.
    #[must_use]
    pub fn options(self) -> String {
        let Self { concurrency, requests, script, .. } = self;
        let mut options = format!("--concurrency {concurrency} --requests {requests}");
        if !self.stagger.is_zero() {
            options += &format!(" --stagger-ms {}", self.stagger.as_millis());
        }
        if !self.stream {
            options += " --no-stream";
        }
        if !self.keep_alive {
            options += " --no-keepalive";
        }
        options += &format!(" --script \"{script}\"");
        if let Some(at) = self.memory_at {
            options += &format!(" --mem-at-ms {}", at.as_millis());
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Script;

    #[test]
    fn every_scenario_has_its_own_name_and_a_script_that_is_understood() {
        for (index, scenario) in SCENARIOS.iter().enumerate() {
            assert_eq!(SCENARIOS.iter().position(|other| other.name == scenario.name), Some(index));
            Script::parse(scenario.script).unwrap();
            assert!(!scenario.shows.is_empty(), "{}", scenario.name);
            assert!(scenario.requests >= scenario.concurrency as u64, "{}", scenario.name);
        }
        assert!(USUAL.iter().all(|name| Scenario::find(name).is_some()));
        assert!(Scenario::find("").is_none());
    }

    #[test]
    fn the_page_on_performance_names_every_scenario_with_the_options_it_has() {
        let page = include_str!("../../../docs/performance.md");
        for scenario in &SCENARIOS {
            let row = page.lines().find(|line| line.starts_with(&format!("| {} |", scenario.name)));
            let row = row.unwrap_or_else(|| panic!("{} has no row", scenario.name));
            let options = scenario.options();
            assert!(row.contains(&format!("`{options}`")), "{}: {options}", scenario.name);
        }
    }

    #[test]
    fn few_and_many_paced_streams_send_as_many_events_a_second() {
        let rate = |name| {
            let scenario = Scenario::find(name).unwrap();
            scenario.concurrency as f64 / Script::parse(scenario.script).unwrap().gap.as_secs_f64()
        };
        assert_eq!((rate("paced64"), rate("paced1000")), (10_000.0, 10_000.0));
    }

    #[test]
    fn paced_streams_are_the_acceptance_line_of_200_by_100_by_20_ms() {
        let paced = Scenario::find("paced200").unwrap();
        assert_eq!((paced.concurrency, paced.requests, paced.is_stamped()), (200, 200, true));
        let script = Script::parse(paced.script).unwrap();
        assert_eq!((script.events, script.gap), (100, Duration::from_millis(20)));
        assert_eq!(Scenario::find("sat64").unwrap().concurrency, 64);
    }
}
