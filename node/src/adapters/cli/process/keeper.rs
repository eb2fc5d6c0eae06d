//! The thread of one program. It blocks in `poll` only, and leaves when the program has ended and been waited for.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    mem,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use dataplane::{clock, mailbox::Sender};
use proto::message::ErrorKind;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open},
};

use super::{
    super::{
        ending::{Ending, Push},
        environment::DIRECTORY,
        reader::{Finished, OutputFormat, ReadError, Reader, Said},
        words::Tail,
    },
    Event, KILL_AFTER, KILLED, LAST_KILL_AFTER,
    link::{LAST_CALL, Link},
    origin::{HugePages, leave_core},
};
use crate::run::terminal::Failed;

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;
/// Reads of standard error after the end: as much as a pipe can hold, and no more of somebody who is still writing.
const LAST_READS_MAX: usize = 64;

/// What is to be run.
pub(super) struct Task {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) environment: BTreeMap<OsString, OsString>,
    pub(super) format: OutputFormat,
    pub(super) prompt: Vec<u8>,
}

/// The way back to the shard. A thread that dies by a panic has an end too.
pub(super) struct Report {
    events: Sender<Event>,
    ended: bool,
}

impl Report {
    pub(super) fn new(events: Sender<Event>) -> Self {
        Self { events, ended: false }
    }

    fn tell(&self, event: Event) {
        // Never full: its bound is that of all events that can wait.
        let _sent = self.events.send(event);
    }

    fn end(mut self, result: Result<Finished, Failed>) {
        self.ended = true;
        self.tell(Event::Ended(result));
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if !self.ended {
            self.tell(Event::Ended(Err(Failed::error(ErrorKind::Internal, "the thread of a program died"))));
        }
    }
}

/// Runs a program to its end.
pub(super) fn keep(task: Task, link: &Link, report: Report) {
    let result = run(task, link, &report);
    report.end(result);
}

fn run(task: Task, link: &Link, report: &Report) -> Result<Finished, Failed> {
    if link.is_stopped() {
        return Err(stopped());
    }
    let format = task.format;
    let mut running = Running::start(task)?;
    let mut reader = Reader::new(format);
    let status = running.attend(link, report, &mut reader)?;
    let mut said = Vec::new();
    let result = running.judge(status, reader, &mut said);
    if !said.is_empty() && result.is_ok() {
        link.sends();
        report.tell(Event::Said(said));
    }
    result
}

fn stopped() -> Failed {
    Failed::error(ErrorKind::Cancelled, "the program was stopped")
}

fn system(error: impl std::fmt::Display) -> Failed {
    Failed::error(ErrorKind::Internal, format!("the program cannot be attended to: {error}"))
}

fn unreadable(error: &ReadError) -> Failed {
    Failed::error(ErrorKind::UpstreamProtocol, error)
}

/// A program that was started. Dropped before its end it is killed and waited for.
struct Running {
    child: Child,
    pid: Pid,
    ending: Ending,
    exited: Option<ExitStatus>,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    prompt: Vec<u8>,
    /// Bytes of it that have been written.
    written: usize,
    complaints: Tail,
    /// Why it is not wanted any more.
    failure: Option<Failed>,
}

/// What `poll` is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Bell,
    LastCall,
    Exit,
    Stdin,
    Stdout,
    Stderr,
}

impl Running {
    fn start(task: Task) -> Result<Self, Failed> {
        let Task { program, args, environment, prompt, .. } = task;
        leave_core();
        // Up to the exec, which the start waits for.
        let huge_pages = HugePages::allow();
        let mut child = Command::new(&program)
            .args(args)
            .env_clear()
            .envs(environment)
            .current_dir(DIRECTORY)
            // Its own group, so that what it starts ends with it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failed::error(ErrorKind::Connect, format!("cannot start {program}: {error}")))?;
        drop(huge_pages);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Self {
            pid: Pid::from_child(&child),
            child,
            ending: Ending::default(),
            exited: None,
            stdin: stdin.map(OwnedFd::from),
            stdout: stdout.map(OwnedFd::from),
            stderr: stderr.map(OwnedFd::from),
            prompt,
            written: 0,
            complaints: Tail::default(),
            failure: None,
        })
    }

    /// Feeds and reads it until it has ended and all that it wrote has been read, or it has failed and ended.
    fn attend(&mut self, link: &Link, report: &Report, reader: &mut Reader) -> Result<ExitStatus, Failed> {
        let exit = pidfd_open(self.pid, PidfdFlags::empty()).map_err(system)?;
        for pipe in [&self.stdin, &self.stdout, &self.stderr].into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true).map_err(system)?;
        }
        let mut last_call = false;
        loop {
            if let (Some(status), None) = (self.exited, &self.stdout) {
                return self.failure.take().map_or(Ok(status), Err);
            }
            let ready = self.wait(link, &exit, last_call)?;
            let now = clock::now();
            let is = |source| ready.contains(&source);
            if is(Source::Bell) {
                link.heard();
            }
            if is(Source::LastCall) {
                last_call = true;
                self.give_up(now, LAST_KILL_AFTER, stopped());
            }
            if link.is_stopped() {
                self.give_up(now, KILL_AFTER, stopped());
            }
            if is(Source::Stdin) {
                self.feed(report);
            }
            if is(Source::Stderr) {
                self.listen();
            }
            if is(Source::Stdout) {
                self.read(link, report, reader, now)?;
            }
            if is(Source::Exit) {
                self.bury()?;
                self.feed_no_more(report);
            }
            if let Some(push) = self.ending.at(now) {
                self.push(push);
            }
        }
    }

    /// Waits for something to do. After the end nothing is waited for but room.
    fn wait(&self, link: &Link, exit: &OwnedFd, last_call: bool) -> Result<Vec<Source>, Failed> {
        let mut sources = vec![(Source::Bell, PollFd::from_borrowed_fd(link.bell(), PollFlags::IN))];
        let mut ask = |source, fd, events| sources.push((source, PollFd::from_borrowed_fd(fd, events)));
        if let Some(bell) = LAST_CALL.hear().filter(|_| !last_call) {
            ask(Source::LastCall, bell, PollFlags::IN);
        }
        let has_ended = self.exited.is_some();
        if !has_ended {
            ask(Source::Exit, exit.as_fd(), PollFlags::IN);
        }
        if let Some(stdin) = &self.stdin {
            ask(Source::Stdin, stdin.as_fd(), PollFlags::OUT);
        }
        if let Some(stderr) = &self.stderr {
            ask(Source::Stderr, stderr.as_fd(), PollFlags::IN);
        }
        let has_room = link.has_room();
        if let Some(stdout) = self.stdout.as_ref().filter(|_| has_room) {
            ask(Source::Stdout, stdout.as_fd(), PollFlags::IN);
        }
        let (sources, mut fds): (Vec<_>, Vec<_>) = sources.into_iter().unzip();
        let due = if has_ended && has_room { Some(clock::now()) } else { self.ending.due() };
        match poll(&mut fds, timeout(due).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(system(error)),
        }
        let mut ready: Vec<_> = sources
            .into_iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(source, _)| source)
            .collect();
        if has_ended && has_room && !ready.contains(&Source::Stdout) {
            // Empty and not closed: somebody else holds it, who does not count.
            ready.push(Source::Stdout);
        }
        Ok(ready)
    }

    /// Writes on of the prompt.
    fn feed(&mut self, report: &Report) {
        let Some(stdin) = &self.stdin else { return };
        match rustix::io::write(stdin, self.prompt.get(self.written..).unwrap_or_default()) {
            Ok(written) => self.written += written,
            Err(Errno::AGAIN | Errno::INTR) => return,
            // It reads no further, which is its own affair.
            Err(_) => self.written = self.prompt.len(),
        }
        if self.written >= self.prompt.len() {
            self.feed_no_more(report);
        }
    }

    fn feed_no_more(&mut self, report: &Report) {
        if self.stdin.take().is_some() {
            drop(mem::take(&mut self.prompt));
            report.tell(Event::PromptTaken);
        }
    }

    fn listen(&mut self) {
        let Some(stderr) = &self.stderr else { return };
        let mut buffer = [0; READ_BYTES];
        match rustix::io::read(stderr, &mut buffer) {
            Ok(0) => self.stderr = None,
            Ok(read) => self.complaints.push(buffer.get(..read).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.stderr = None,
        }
    }

    fn read(
        &mut self,
        link: &Link,
        report: &Report,
        reader: &mut Reader,
        now: Instant,
    ) -> Result<(), Failed> {
        let Some(stdout) = &self.stdout else { return Ok(()) };
        let mut buffer = [0; READ_BYTES];
        let read = match rustix::io::read(stdout, &mut buffer) {
            Ok(read) => read,
            Err(Errno::INTR) => return Ok(()),
            Err(Errno::AGAIN) if self.exited.is_none() => return Ok(()),
            Err(Errno::AGAIN) => 0,
            Err(error) => return Err(system(error)),
        };
        if read == 0 {
            self.stdout = None;
            return Ok(());
        }
        let mut said: Vec<Said> = Vec::new();
        let result = reader.push(buffer.get(..read).unwrap_or_default(), &mut said);
        if !said.is_empty() {
            link.sends();
            report.tell(Event::Said(said));
        }
        if let Err(error) = result {
            self.give_up(now, KILL_AFTER, unreadable(&error));
        }
        Ok(())
    }

    /// Nothing of it is wanted any more. The first reason counts.
    fn give_up(&mut self, now: Instant, grace: Duration, why: Failed) {
        self.failure.get_or_insert(why);
        (self.stdin, self.stdout, self.stderr) = (None, None, None);
        self.prompt = Vec::new();
        if let Some(push) = self.ending.want(now, grace) {
            self.push(push);
        }
    }

    fn push(&self, push: Push) {
        let signal = match push {
            Push::Ask => Signal::TERM,
            Push::Kill => {
                KILLED.fetch_add(1, SeqCst);
                Signal::KILL
            }
        };
        self.send(signal);
    }

    /// To the group and to the program itself, should it have left its group. It has not been waited for, so both numbers are
    /// its own.
    fn send(&self, signal: Signal) {
        if self.exited.is_none() {
            let _gone = kill_process_group(self.pid, signal);
            let _gone = kill_process(self.pid, signal);
        }
    }

    /// It has ended: what is left of its group is killed while the group's number cannot be anybody else's yet, and it is waited for.
    fn bury(&mut self) -> Result<(), Failed> {
        self.ending.ended();
        self.send(Signal::KILL);
        self.exited = Some(self.child.wait().map_err(system)?);
        for _ in 0..LAST_READS_MAX {
            if self.stderr.is_none() {
                break;
            }
            self.listen();
        }
        self.stderr = None;
        Ok(())
    }

    /// Whether what it said is an answer.
    fn judge(&self, status: ExitStatus, reader: Reader, said: &mut Vec<Said>) -> Result<Finished, Failed> {
        if status.success() {
            return reader.finish(said).map_err(|error| unreadable(&error));
        }
        let words = reader.complaint().unwrap_or_else(|| self.complaints.words());
        let colon = if words.is_empty() { "" } else { ": " };
        let ended = match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended in an unknown way".to_owned(),
        };
        Err(Failed::error(ErrorKind::UpstreamProtocol, format!("the program {ended}{colon}{words}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.exited.is_none() {
            self.send(Signal::KILL);
            let _status = self.child.wait();
        }
    }
}

/// How long until `due`; `None` is for ever.
fn timeout(due: Option<Instant>) -> Option<Timespec> {
    let wait = due?.saturating_duration_since(clock::now());
    Timespec::try_from(wait).ok()
}
