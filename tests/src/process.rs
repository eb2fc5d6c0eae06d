//! A child process with a log file, ended when it is dropped.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// How long a child may take to say that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to end after SIGTERM before it is killed.
const END_WITHIN: Duration = Duration::from_secs(5);

/// A running child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`; what it prints goes to `NAME.log` in `dir`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        name: &str,
        program: &Path,
        args: &[&str],
        env: &[(&str, &str)],
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.args(args).envs(env.iter().copied());
        Self::spawn(name, &mut command, dir)
    }

    /// Starts a command that is ready but for its output, which goes to `NAME.log` in `dir`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(name: &str, command: &mut Command, dir: &Path) -> anyhow::Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it printed.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Waits until a line of the log contains `marker` and gives that line.
    ///
    /// # Errors
    /// The process ended, or said nothing of the kind in time; the log's end is in the error.
    pub fn wait_for(&mut self, marker: &str) -> anyhow::Result<String> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if let Some(line) = self.line_with(marker)? {
                return Ok(line);
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let text = std::fs::read_to_string(&self.log).unwrap_or_default();
                let tail: Vec<_> = text.lines().rev().take(15).collect();
                let tail: String = tail.into_iter().rev().map(|l| format!("  {l}\n")).collect();
                bail!(
                    "{}: waited for `{marker}` ({})\n{tail}",
                    self.name,
                    ended.map_or("still running".to_owned(), |s| s.to_string())
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The first line of the log that contains `marker`.
    pub fn line_with(&self, marker: &str) -> anyhow::Result<Option<String>> {
        let text = std::fs::read_to_string(&self.log)?;
        // The last line may still be growing.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        Ok(whole.lines().find(|line| line.contains(marker)).map(str::to_owned))
    }

    /// Everything that it printed so far.
    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Whether it has not ended.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }

    /// Sends a signal to the process, which must be running.
    pub fn signal(&self, signal: libc::c_int) {
        let Ok(pid) = libc::pid_t::try_from(self.child.id()) else { return };
        // SAFETY: plain system call; the child has not been waited for, so the pid is still its own.
        unsafe {
            libc::kill(pid, signal);
        }
    }

    /// Waits for the end and gives the exit code.
    ///
    /// # Errors
    /// It does not end in time, or ends by a signal.
    pub fn wait_exit(&mut self, within: Duration) -> anyhow::Result<i32> {
        let status = self.wait_end(within)?;
        status.code().with_context(|| format!("{} ended with {status}", self.name))
    }

    /// Waits for the end, by an exit or by a signal.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn wait_end(&mut self, within: Duration) -> anyhow::Result<ExitStatus> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("{} did not end within {within:?}", self.name)
    }

    fn terminate(&mut self) {
        self.signal(libc::SIGTERM);
        let deadline = Instant::now() + END_WITHIN;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.terminate();
        }
    }
}
