//! The loads under which subjects are compared. `docs/performance.md` says what each shows, and a test that it says so of
//! these.

use std::time::Duration;

use crate::load::{self, Arrivals, Length};

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
#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// When memory is read within the run.
    memory_at: Option<Duration>,
    /// Whether the subject is started anew for every round and not warmed up, because what is measured is what its memory
    /// grows by, and memory that a process once took it often keeps.
    pub is_fresh: bool,
    /// Requests per second of a Poisson process, for so long, on at most so many connections (as many as it needs if not
    /// given); else the load is closed.
    open: Option<Open>,
    /// Whether a refusal (429, 503) is an answer as good as any.
    pub is_overload: bool,
}

/// An open load.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Open {
    per_second: f64,
    seconds: u64,
    connections: Option<usize>,
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
    is_fresh: false,
    open: None,
    is_overload: false,
};
const REPLIES: Scenario =
    Scenario { unit: Unit::Request, requests: 10_000, script: "events=30", stream: false, ..STREAMS };
const IDLE: Scenario = Scenario {
    shows: "Memory of a silent stream.",
    concurrency: 1000,
    requests: 1000,
    script: "prefill=8s events=1",
    memory_at: Some(Duration::from_secs(5)),
    is_fresh: true,
    ..STREAMS
};
/// Streams of 200 ms: one that takes 64 of them at a time can do 320 a second.
const LIMITED: Scenario =
    Scenario { script: "events=20 gap=10ms", memory_at: Some(Duration::from_secs(6)), ..STREAMS };

/// All of them.
pub const SCENARIOS: [Scenario; 14] = [
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
    Scenario {
        name: "rate3000",
        shows: "What a request takes at a rate that leaves the machine room, by its schedule.",
        concurrency: 32,
        requests: 15_000,
        open: Some(Open { per_second: 3000.0, seconds: 5, connections: Some(32) }),
        ..REPLIES
    },
    Scenario {
        name: "capacity",
        shows: "64 streams at a time: the most that a subject does which takes no more.",
        requests: 2560,
        ..LIMITED
    },
    Scenario {
        name: "overload",
        shows: "Three times as many as a subject does that takes 64 at a time; refusals are answers.",
        requests: 9600,
        open: Some(Open { per_second: 960.0, seconds: 10, connections: None }),
        is_overload: true,
        ..LIMITED
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
            length: match self.open {
                Some(open) => Length::Time(Duration::from_secs(open.seconds)),
                None => Length::Requests(self.requests),
            },
            // Fills the subject's pool of connections to the provider; what the idle scenario measures it would spoil.
            warmup_requests: if self.is_fresh { 0 } else { self.concurrency as u64 },
            stream: self.stream,
            script: Some(self.script.to_owned()),
            keep_alive: self.keep_alive,
            stagger: self.stagger,
            memory_at: self.memory_at,
            arrivals: self
                .open
                .map_or(Arrivals::Closed, |open| Arrivals::Poisson { per_second: open.per_second, seed: 1 }),
            connections: self.open.and_then(|open| open.connections),
            ..load::Config::default()
        }
    }

    /// What `iop-perf load` has to be told for a round of it.
    #[must_use]
    pub fn options(self) -> String {
        let Self { concurrency, requests, script, .. } = self;
        let mut options = match self.open {
            Some(Open { per_second, seconds, connections }) => {
                let most = connections.map_or_else(String::new, |most| format!(" --connections {most}"));
                format!("--arrivals poisson:{per_second} --seconds {seconds}{most}")
            }
            None => format!("--concurrency {concurrency} --requests {requests}"),
        };
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
        if self.is_overload {
            options += " --allow-errors";
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
    fn an_overload_is_three_times_what_a_limit_of_64_lets_through() {
        let [capacity, overload] = ["capacity", "overload"].map(|name| Scenario::find(name).unwrap());
        let script = Script::parse(capacity.script).unwrap();
        let stream = script.gap.as_secs_f64() * f64::from(script.events);
        let most = capacity.concurrency as f64 / stream;
        assert!(
            (overload.open.unwrap().per_second / most - 3.0).abs() < 1e-9
                && overload.script == capacity.script
        );
        for scenario in SCENARIOS {
            if let Some(open) = scenario.open {
                assert!(
                    (open.per_second * open.seconds as f64 - scenario.requests as f64).abs() < 1e-9,
                    "{}",
                    scenario.name
                );
            }
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
