//! What a relayed event and a request cost in instructions, process by process, against a committed baseline.
//!
//! CPU time depends on the machine and its other load; the number of instructions hardly does. The subject's processes run
//! under callgrind. One stream goes through them in lockstep: the provider sends an event only when the last one has
//! arrived at the client, so that nothing is batched by chance. A load of n and one of 3n: their difference by 2n is the
//! cost of one, and what happens once per stream, per connection or by a timer drops out.
//!
//! Reading order: `lockstep` is the load, `callgrind` reads what was counted, [`Baseline`] compares; this file drives.

mod baseline;
mod callgrind;
mod lockstep;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::subject::{Place, Running, Subject, on_path};
pub use baseline::{Baseline, Check, Facts, Figure, TOLERANCE};
use callgrind::Profile;
use lockstep::Lockstep;

/// How long a process may take to write a profile.
const DUMP_WITHIN_S: u32 = 120;
/// The processes finish what a load left to do before they are asked for a profile.
const SETTLE: Duration = Duration::from_millis(300);

/// What is counted.
#[derive(Debug, Clone)]
pub struct Config {
    /// The subject.
    pub subject: Subject,
    /// The directory of its `@bin@`.
    pub bin: PathBuf,
    /// The directory of its `@peers@`.
    pub peers: PathBuf,
    /// Environment variables of its processes.
    pub env: Vec<(String, String)>,
    /// Events of the shorter stream.
    pub events: u32,
    /// Requests of the shorter run.
    pub requests: u32,
    /// How often everything is counted; the median is taken.
    pub repeats: u32,
    /// Where the profiles are copied to, for `callgrind_annotate`.
    pub profiles: Option<PathBuf>,
}

/// Counts.
///
/// # Errors
/// valgrind is missing, the subject does not start, or a reply is wrong.
pub fn run(config: &Config, mut progress: impl FnMut(&str)) -> anyhow::Result<BTreeMap<String, Figure>> {
    for program in ["valgrind", "vgdb"] {
        ensure!(on_path(program), "{program} is not installed; on Debian: apt-get install valgrind");
    }
    let load = Lockstep::start()?;
    let wrapper = ["valgrind", "--tool=callgrind", "--callgrind-out-file=@dir@/callgrind.@name@"];
    let place = Place {
        bin: config.bin.clone(),
        peers: config.peers.clone(),
        provider: load.provider(),
        wrapper: wrapper.map(str::to_owned).to_vec(),
        env: config.env.clone(),
    };
    progress(&format!("starting {} under callgrind", config.subject.name));
    let mut counter = Counter {
        running: Running::start(&config.subject, &place)?,
        dumps: 0,
        copies: config.profiles.clone(),
    };
    load.take_control();
    // Pools fill, buffers grow, lazily made tables are made.
    load.stream(&counter.running, config.events)?;
    load.requests(&counter.running, config.requests)?;
    counter.dump()?;
    let mut counted: BTreeMap<String, Vec<Profile>> = BTreeMap::new();
    for repeat in 1..=config.repeats {
        progress(&format!("counting, {repeat} of {}", config.repeats));
        let (n, r) = (config.events, config.requests);
        let events = counter.difference(n, |running, count| load.stream(running, count))?;
        let requests = counter.difference(r, |running, count| load.requests(running, count))?;
        for (unit, profiles) in [("event", events), ("request", requests)] {
            for (process, profile) in profiles {
                counted.entry(format!("{unit} {process}")).or_default().push(profile);
            }
        }
    }
    Ok(counted.into_iter().map(|(name, profiles)| (name, Figure::of(&profiles))).collect())
}

/// The subject under callgrind, and how many profiles its processes have written.
struct Counter {
    running: Running,
    dumps: u32,
    copies: Option<PathBuf>,
}

impl Counter {
    /// Runs `load` with `count` and with three times as much: what one costs each process.
    fn difference(
        &mut self,
        count: u32,
        load: impl Fn(&Running, u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<BTreeMap<String, Profile>> {
        load(&self.running, count)?;
        let once = self.dump()?;
        load(&self.running, count * 3)?;
        let thrice = self.dump()?;
        let cost = |(name, thrice): (String, Profile)| {
            let once = once.get(&name).cloned().unwrap_or_default();
            (name, thrice.minus(&once).divided_by(f64::from(count) * 2.0))
        };
        Ok(thrice.into_iter().map(cost).collect())
    }

    /// Has every process write down what it has executed since the last time.
    fn dump(&mut self) -> anyhow::Result<BTreeMap<String, Profile>> {
        std::thread::sleep(SETTLE);
        self.running.check_alive()?;
        self.dumps += 1;
        let mut profiles = BTreeMap::new();
        for process in self.running.processes() {
            let output = Command::new("vgdb")
                .arg(format!("--pid={}", process.pid))
                .arg(format!("--cmd-time-out={DUMP_WITHIN_S}"))
                .args(["dump", "iop-perf"])
                .output()
                .context("cannot run vgdb")?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{} wrote no profile: {said}", process.name);
            let file = self.running.dir().join(format!("callgrind.{}.{}", process.name, self.dumps));
            let text = std::fs::read(&file).with_context(|| format!("read {}: {said}", file.display()))?;
            if let Some(dir) = &self.copies {
                std::fs::create_dir_all(dir)?;
                std::fs::copy(&file, dir.join(file.file_name().unwrap_or_default()))?;
            }
            let profile = Profile::parse(&String::from_utf8_lossy(&text));
            profiles.insert(process.name.clone(), profile.with_context(|| file.display().to_string())?);
        }
        Ok(profiles)
    }
}
