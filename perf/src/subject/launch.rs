//! Starting a subject and ending it: a driver, with a bound on every wait.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::template::{Template, word_after};
use super::{ProcessSpec, Subject};
use crate::load::{self, Length, Target};
use crate::procfs;

/// How long one process may take to say that it is ready, and the whole to answer its first request.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long a process may take to end after SIGTERM before it is killed.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How often a start is tried: another program may take a port between its choice and its use.
const STARTS_MAX: u32 = 3;
/// Ports are taken from here: below the range of outgoing connections, which would be in use by chance.
const PORTS: std::ops::Range<u16> = 10_000..30_000;
/// Pause between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// Where and how subjects run.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directory of `@bin@`.
    pub bin: PathBuf,
    /// The directory of `@peers@`.
    pub peers: PathBuf,
    /// The provider.
    pub provider: SocketAddr,
    /// Program and arguments put before every process; `@name@` is the process's name, further names as in a subject's file.
    pub wrapper: Vec<String>,
    /// Environment variables of every process.
    pub env: Vec<(String, String)>,
}

impl Place {
    /// What names stand for wherever a subject runs.
    fn template(&self) -> anyhow::Result<Template> {
        let mut template = Template::default();
        template.set("bin", path(&self.bin)?);
        template.set("peers", path(&self.peers)?);
        template.set("provider", self.provider.to_string());
        template.set("provider:host", self.provider.ip().to_string());
        template.set("provider:port", self.provider.port().to_string());
        Ok(template)
    }

    /// Which version of the subject is measured here: the first line that its `version` command prints.
    ///
    /// # Errors
    /// It cannot be run, or prints nothing.
    pub fn version(&self, subject: &Subject) -> anyhow::Result<Option<String>> {
        if subject.version.is_empty() {
            return Ok(None);
        }
        let run = fill_all(&mut self.template()?, &subject.version)?;
        let (program, args) = run.split_first().context("a command without a program")?;
        let output = Command::new(program).args(args).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot run {program}"))?;
        // nginx says it on standard error.
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        let line = line.with_context(|| format!("{program} did not say its version"))?;
        // Some name themselves by the path that they were started by.
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        Ok(Some(line.replace(program.as_str(), &name)))
    }
}

/// A subject whose processes run. They are ended when it is dropped.
#[derive(Debug)]
pub struct Running {
    /// Where clients connect.
    pub target: Target,
    /// The bearer token.
    pub token: Option<String>,
    /// The model that is asked for.
    pub model: String,
    children: Vec<(String, Child)>,
    dir: TempDir,
}

impl Running {
    /// Sets a subject up, starts it and waits until a request through it succeeds.
    ///
    /// # Errors
    /// A program is missing, a command fails, or it does not answer in time; what it printed last is in the error.
    pub fn start(subject: &Subject, place: &Place) -> anyhow::Result<Self> {
        let subject = &super::repeat::expand(subject);
        for (program, remedy) in &subject.needs {
            let program = place.template()?.fill(program, free_port)?;
            ensure!(on_path(&program), "{}: {program} is not installed; {remedy}", subject.name);
        }
        let mut last = None;
        for _ in 0..STARTS_MAX {
            match Self::try_start(subject, place) {
                Ok(running) => return Ok(running),
                Err(error) => last = Some(error),
            }
        }
        Err(last
            .unwrap_or_else(|| anyhow::anyhow!("never started"))
            .context(format!("{} did not start ({STARTS_MAX} attempts)", subject.name)))
    }

    fn try_start(subject: &Subject, place: &Place) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("iop-perf-").tempdir()?;
        let mut template = place.template()?;
        template.set("dir", path(dir.path())?);
        for step in &subject.setup {
            let run = fill_all(&mut template, &step.run)?;
            let printed = run_tool(&run, dir.path())?;
            for (name, marker) in &step.take {
                let word = word_after(&printed, marker);
                let word = word.with_context(|| format!("`{}` did not print {marker:?}", run.join(" ")))?;
                template.set(name, word);
            }
        }
        for (name, text) in &subject.files {
            let text = template.fill(text, free_port)?;
            std::fs::write(dir.path().join(name), text).with_context(|| format!("write {name}"))?;
        }
        let url = template.fill(&subject.url, free_port)?;
        let token = subject.token.as_ref().map(|token| template.fill(token, free_port)).transpose()?;
        let target: Target = url.parse().with_context(|| url.clone())?;
        let mut running = Self { target, token, model: subject.model.clone(), children: Vec::new(), dir };
        for process in &subject.processes {
            running.start_one(process, &mut template, place)?;
        }
        running.wait_for_reply()?;
        Ok(running)
    }

    fn start_one(
        &mut self,
        spec: &ProcessSpec,
        template: &mut Template,
        place: &Place,
    ) -> anyhow::Result<()> {
        template.set("name", spec.name.as_str());
        let run = fill_all(template, &[place.wrapper.as_slice(), spec.run.as_slice()].concat())?;
        let (program, args) = run.split_first().context("a command without a program")?;
        let log = File::create(self.log(&spec.name))?;
        let mut command = Command::new(program);
        command.args(args).current_dir(self.dir.path()).envs(place.env.iter().cloned());
        for (name, value) in &spec.env {
            command.env(name, template.fill(value, free_port)?);
        }
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let child = child.with_context(|| format!("cannot start `{}`", run.join(" ")))?;
        self.children.push((spec.name.clone(), child));
        let Some(ready) = &spec.ready else { return Ok(()) };
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            self.check_alive()?;
            if self.text(&spec.name)?.contains(ready.as_str()) {
                return Ok(());
            }
            let tail = || self.tail(&spec.name);
            ensure!(
                Instant::now() < deadline,
                "{} did not say {ready:?} within {READY_WITHIN:?}:\n{}",
                spec.name,
                tail()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Sends a request now and then until one succeeds.
    fn wait_for_reply(&mut self) -> anyhow::Result<()> {
        let config = load::Config {
            target: self.target.clone(),
            token: self.token.clone(),
            model: self.model.clone(),
            length: Length::Requests(1),
            timeout: READY_WITHIN,
            ..load::Config::default()
        };
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            self.check_alive()?;
            let report = load::run(&config)?;
            if report.is_clean() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let tails: String = self.children.iter().map(|(name, _)| self.tail(name)).collect();
                bail!("no request succeeded within {READY_WITHIN:?} ({:?}):\n{tails}", report.errors);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// That every process still runs.
    ///
    /// # Errors
    /// One has ended; what it printed last is in the error.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        let mut ended = None;
        for (name, child) in &mut self.children {
            if let Some(status) = child.try_wait()? {
                ended = Some((name.clone(), status));
            }
        }
        let Some((name, status)) = ended else { return Ok(()) };
        bail!("{name} has ended with {status}:\n{}", self.tail(&name))
    }

    /// Its processes, for measuring.
    #[must_use]
    pub fn processes(&self) -> Vec<procfs::Process> {
        self.children
            .iter()
            .map(|(name, child)| procfs::Process { name: name.clone(), pid: child.id() })
            .collect()
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    fn text(&self, name: &str) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(self.log(name))?).into_owned())
    }

    /// The end of what a process printed.
    fn tail(&self, name: &str) -> String {
        const TAIL_BYTES: u64 = 4096;
        let mut bytes = Vec::new();
        let read = File::open(self.log(name)).and_then(|mut file| {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
            file.read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => format!("[{name}]\n{}", String::from_utf8_lossy(&bytes)),
            Err(error) => format!("[{name}: {error}]\n"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (_, child) in self.children.iter_mut().rev() {
            end(child);
        }
    }
}

/// SIGTERM, a bounded wait, SIGKILL; by process id only.
pub(crate) fn end(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let (Some(pid), Ok(None)) = (pid, child.try_wait()) {
        // It has not been waited for, so the id is still its own; it may have ended this moment, which is as good.
        let _ = kill_process(pid, Signal::TERM);
    }
    let deadline = Instant::now() + END_WITHIN;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return;
        }
        std::thread::sleep(LOOK);
    }
}

fn fill_all(template: &mut Template, texts: &[String]) -> anyhow::Result<Vec<String>> {
    texts.iter().map(|text| Ok(template.fill(text, free_port)?)).collect()
}

fn run_tool(run: &[String], dir: &Path) -> anyhow::Result<String> {
    let (program, args) = run.split_first().context("a command without a program")?;
    let output = Command::new(program).args(args).current_dir(dir).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}` ended with {}: {said}", run.join(" "), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A port that nothing listens on at the moment.
fn free_port() -> Option<u16> {
    use std::hash::{BuildHasher as _, RandomState};
    const TRIES: u32 = 200;
    (0..TRIES).find_map(|try_| {
        let random = RandomState::new().hash_one((std::process::id(), try_));
        let port = PORTS.start + u16::try_from(random % PORTS.len() as u64).unwrap_or(0);
        TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(port)
    })
}

/// Whether a program is found: by its path, or in a directory of `PATH`.
pub(crate) fn on_path(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}
