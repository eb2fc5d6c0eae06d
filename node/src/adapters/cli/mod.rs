//! Normalized runs by a configured program: one child process for each run, the prompt on its standard input, the answer on its
//! standard output.
//!
//! | Module | Owns | Pure |
//! |---|---|---|
//! | [`prompt`] | the conversation as text | yes |
//! | [`environment`] | variables and directory of the program | yes |
//! | [`reader`] | its output as an answer, cut anywhere | yes |
//! | [`words`] | its last words on standard error | yes |
//! | [`ending`] | when it is asked to end, and when it is made to | yes |
//! | [`process`] | starting, feeding, reading, ending and waiting for it, off the shard | no |
//!
//! Program, arguments, variables and directory come from the configuration alone. Nothing of a request is in them: not the prompt, not
//! the target, not its metadata (FRB-3, RUN-7). There is no shell and no terminal, and nothing of one run is left for the next.

pub mod ending;
pub mod environment;
pub mod process;
pub mod prompt;
pub mod reader;
pub mod words;

use std::{ffi::OsString, path::Path, rc::Rc};

use proto::message::{CliConfig, ErrorKind};
use thiserror::Error;

use super::native::{Finish, Job, Leftover};
use crate::run::{output::Output, terminal::Failed};
use process::{Event, Plan, Process, StartError};
use reader::{Finished, OutputFormat, Said};

/// How a program gets its prompt: on its standard input, once. There is no other way.
pub const MODE: &str = "stdin";

/// Why settings cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CliError {
    /// Nothing to start.
    #[error("`command` is empty")]
    NoCommand,
    /// It would depend on a directory or on PATH which program that is.
    #[error("`command` must be an absolute path, and is {0:?}")]
    Relative(String),
    /// Of a newer Edge.
    #[error("`mode` is {0:?}, and this node knows `{MODE}` only")]
    Mode(String),
    /// Of a newer Edge.
    #[error("`output_format` is {0:?}, and this node knows `text`, `json` and `stream-json`")]
    Format(String),
    /// No system starts a program with it.
    #[error("`{0}` has what cannot be handed to a program: a NUL, or no name for a variable")]
    Unfit(&'static str),
}

/// One `cli` instance.
#[derive(Clone, Debug)]
pub struct Cli {
    plan: Plan,
}

impl Cli {
    /// An instance with these settings, on a Node that has `own` variables. Whether the program is there is found out when it
    /// is started: it may be installed later.
    ///
    /// # Errors
    /// [`CliError`].
    pub fn new(settings: &CliConfig, own: impl Fn(&str) -> Option<OsString>) -> Result<Self, CliError> {
        let CliConfig { command, args, env, mode, output_format } = settings;
        if command.is_empty() {
            return Err(CliError::NoCommand);
        }
        if !Path::new(command).is_absolute() {
            return Err(CliError::Relative(command.clone()));
        }
        if !matches!(mode.as_str(), "" | MODE) {
            return Err(CliError::Mode(mode.clone()));
        }
        let format =
            OutputFormat::parse(output_format).ok_or_else(|| CliError::Format(output_format.clone()))?;
        for (field, fits) in [
            ("command", environment::is_value(command)),
            ("args", args.iter().all(|argument| environment::is_value(argument))),
            (
                "env",
                env.iter().all(|(name, value)| environment::is_name(name) && environment::is_value(value)),
            ),
        ] {
            if !fits {
                return Err(CliError::Unfit(field));
            }
        }
        let environment = environment::environment(own, env);
        let plan = Plan {
            program: command.as_str().into(),
            args: args.as_slice().into(),
            environment: Rc::new(environment),
            format,
        };
        Ok(Self { plan })
    }

    /// The program's path.
    #[must_use]
    pub fn program(&self) -> &Path {
        Path::new(&*self.plan.program)
    }

    /// Executes a run: one program from its start to its end. Dropping it stops the program; until that is gone it is in
    /// `leftover`.
    ///
    /// # Errors
    /// [`Failed`]: what the terminal is to say.
    pub async fn run(
        &self,
        job: Job,
        output: &mut Output<'_>,
        leftover: &Leftover,
    ) -> Result<Finish, Failed> {
        let Job { input, reservation, .. } = job;
        let prompt =
            prompt::render(&input).map_err(|error| Failed::error(ErrorKind::InvalidRequest, error))?;
        drop(input);
        let mut reservation = reservation;
        let process = Process::start(&self.plan, prompt).map_err(refused)?;
        leftover.hold_until(process.gone());
        loop {
            // What the Edge does not take stays with the program.
            output.ready().await?;
            match process.next().await {
                Event::PromptTaken => reservation = None,
                Event::Said(said) => pass_on(said, output)?,
                Event::Ended(result) => {
                    drop(reservation);
                    let Finished { reason, usage } = result?;
                    return Ok(Finish { reason: reason.to_owned(), usage, ..Finish::default() });
                }
            }
        }
    }
}

fn pass_on(said: Vec<Said>, output: &mut Output<'_>) -> Result<(), Failed> {
    said.into_iter().try_for_each(|piece| match piece {
        Said::Text(text) => output.text(text),
        Said::Reasoning(text) => output.reasoning(text),
        Said::Usage(usage) => output.usage(usage),
    })
}

fn refused(error: StartError) -> Failed {
    let kind = match error {
        StartError::TooMany | StartError::Ending => ErrorKind::Busy,
        StartError::System(_) => ErrorKind::Internal,
    };
    Failed::error(kind, error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings() -> CliConfig {
        CliConfig { command: "/bin/cat".to_owned(), ..CliConfig::default() }
    }

    // req: FRB-3
    #[test]
    fn only_a_program_that_the_configuration_names_whole_can_be_run() {
        let command = |command: &str| CliConfig { command: command.to_owned(), ..settings() };
        for (settings, error) in [
            (command(""), CliError::NoCommand),
            (command("cat"), CliError::Relative("cat".to_owned())),
            (command("./cat"), CliError::Relative("./cat".to_owned())),
            (CliConfig { mode: "pty".to_owned(), ..settings() }, CliError::Mode("pty".to_owned())),
            (CliConfig { output_format: "xml".to_owned(), ..settings() }, CliError::Format("xml".to_owned())),
            (CliConfig { args: vec!["a\0b".to_owned()], ..settings() }, CliError::Unfit("args")),
            (
                CliConfig { env: BTreeMap::from([("A=B".to_owned(), String::new())]), ..settings() },
                CliError::Unfit("env"),
            ),
            (command("/bin/c\0at"), CliError::Unfit("command")),
        ] {
            assert_eq!(Cli::new(&settings, |_| None).unwrap_err(), error);
        }
        for mode in ["", "stdin"] {
            for format in ["", "text", "json", "stream-json"] {
                let settings =
                    CliConfig { mode: mode.to_owned(), output_format: format.to_owned(), ..settings() };
                assert_eq!(Cli::new(&settings, |_| None).unwrap().program(), Path::new("/bin/cat"));
            }
        }
    }
}
