//! Claude Code and Codex without their screens, at a task of two tools: they read one file and write another. Each runs the binary
//! of its package with an environment of its own, and can reach this machine alone.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, bail, ensure};
use iop_tests::{
    Process, ProviderYaml,
    bench::{NODE, SOON, eventually, metric, site, start_node, yaml},
    engine::{self, Engine},
    model::{
        ScriptedModel, Surface,
        plot::{READ_FILE, WRITTEN, WRITTEN_FILE},
    },
};

use crate::stand::{Stand, peer};

/// How long one run may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What stands in the file that the model has to read.
const SECRET: &str = "swordfish-4711";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Claude,
    Codex,
}

/// What became of a run.
#[derive(Debug)]
struct Run {
    code: i32,
    said: String,
    dir: tempfile::TempDir,
}

impl Agent {
    fn program(self) -> anyhow::Result<Option<PathBuf>> {
        let Some(dir) = peer("IOP_TEST_AGENTS")? else { return Ok(None) };
        let modules = dir.join("node_modules");
        let (packages, name, path) = match self {
            Self::Claude => (modules.join("@anthropic-ai"), "claude-code-linux-", "claude"),
            Self::Codex => (modules.join("@openai"), "codex-linux-", "vendor/*/bin/codex"),
        };
        // npm installs what fits this machine.
        for package in std::fs::read_dir(&packages).with_context(|| packages.display().to_string())? {
            let package = package?.path();
            if !package.file_name().is_some_and(|found| found.to_string_lossy().starts_with(name)) {
                continue;
            }
            let found = match path.split_once("/*/") {
                None => Some(package.join(path)),
                Some((before, after)) => std::fs::read_dir(package.join(before))?
                    .filter_map(Result::ok)
                    .map(|entry| entry.path().join(after))
                    .find(|program| program.exists()),
            };
            if let Some(program) = found.filter(|program| program.exists()) {
                return Ok(Some(program));
            }
        }
        bail!("no {name}* with {path} in {}", packages.display())
    }

    /// Runs it to its end. `None` where it is not installed and need not be.
    fn run(self, url: &str, token: &str, model: &str, prompt: &str) -> anyhow::Result<Option<Run>> {
        let Some(program) = self.program()? else { return Ok(None) };
        let dir = tempfile::Builder::new().prefix("iop-agent-").tempdir()?;
        let (home, work) = (dir.path().join("home"), dir.path().join("work"));
        std::fs::create_dir_all(home.join(".codex"))?;
        std::fs::create_dir_all(&work)?;
        std::fs::write(work.join(READ_FILE), SECRET)?;
        let is_task = prompt.contains("DIR");
        let prompt = prompt.replace("DIR", &work.display().to_string());
        let mut command = Command::new(program);
        command
            .current_dir(&work)
            .env_clear()
            .env("HOME", &home)
            .env("PATH", "/usr/bin:/bin")
            .env("SHELL", "/bin/sh");
        // Whatever else it wants to reach, there is nobody.
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            command.env(name, "http://127.0.0.1:9");
        }
        command.env("NO_PROXY", "127.0.0.1,localhost").env("no_proxy", "127.0.0.1,localhost");
        match self {
            Self::Claude => {
                command.envs([
                    ("ANTHROPIC_BASE_URL", url.trim_end_matches("/v1")),
                    ("ANTHROPIC_AUTH_TOKEN", token),
                    ("ANTHROPIC_MODEL", model),
                    ("ANTHROPIC_DEFAULT_HAIKU_MODEL", model),
                    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
                    ("DISABLE_AUTOUPDATER", "1"),
                    ("CLAUDE_CODE_MAX_RETRIES", "2"),
                    // It refuses to run tools unasked as root unless it is told that nothing can be lost.
                    ("IS_SANDBOX", "1"),
                ]);
                if !is_task {
                    // With them it answers a 400 by leaving out one after the other: six requests instead of one.
                    command.env("CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS", "1");
                }
                command.args(["-p", &prompt, "--dangerously-skip-permissions"]);
            }
            Self::Codex => {
                let config = format!(
                    "model = \"{model}\"\nmodel_provider = \"edge\"\ncheck_for_update_on_startup = false\n\
                     [model_providers.edge]\nname = \"edge\"\nbase_url = \"{url}\"\nenv_key = \"EDGE_TOKEN\"\n\
                     wire_api = \"responses\"\n[analytics]\nenabled = false\n"
                );
                std::fs::write(home.join(".codex/config.toml"), config)?;
                command.env("EDGE_TOKEN", token);
                command.args([
                    "exec",
                    "--skip-git-repo-check",
                    "--dangerously-bypass-approvals-and-sandbox",
                    &prompt,
                ]);
            }
        }
        let mut process = Process::spawn("agent", &mut command, dir.path())?;
        let code = process.wait_exit(PATIENCE).with_context(|| process.text())?;
        Ok(Some(Run { code, said: process.text(), dir }))
    }

    /// The task of two tools, and what it must leave behind.
    fn does_the_task(self, url: &str, token: &str, model: &str) -> anyhow::Result<bool> {
        let Some(run) =
            self.run(url, token, model, "IOPTASK DIR : read the question and write the answer")?
        else {
            return Ok(false);
        };
        let Run { code, said, dir } = run;
        ensure!(code == 0, "{self:?} ended with {code}: {said}");
        // The model says what the tool read, and the agent what the model says.
        ensure!(said.contains(SECRET), "{self:?} did not tell: {said}");
        let written = std::fs::read_to_string(dir.path().join("work").join(WRITTEN_FILE)).context(said)?;
        ensure!(written == WRITTEN, "{self:?} wrote {written}");
        Ok(true)
    }
}

/// How often each agent asks when its model fails in one way, at most: api.md §1.6, where the last column says it, and what its
/// version here does at a provider of its own. What is tried again without end is bounded by `CLAUDE_CODE_MAX_RETRIES`.
const FAILURES: [(&str, usize, usize); 11] = [
    ("status-400", 1, 1),
    ("status-401", 3, 6),
    ("status-403", 1, 6),
    ("status-404", 2, 6),
    ("status-413", 1, 6),
    ("status-429", 3, 6),
    ("status-500", 3, 30),
    ("status-503", 3, 30),
    ("status-529", 3, 30),
    ("cut", 4, 6),
    ("failing", 4, 6),
];

/// Lets both agents ask models that fail, whose names begin so, and gives for each how often `asked` says it was asked.
fn failures(
    url: &str,
    token: &str,
    [claude, codex]: [&str; 2],
    asked: impl Fn(&str, Agent) -> usize + Sync,
) -> anyhow::Result<()> {
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let mut runs = Vec::new();
        for (model, of_claude, of_codex) in FAILURES {
            for (agent, prefix, limit) in
                [(Agent::Claude, claude, of_claude), (Agent::Codex, codex, of_codex)]
            {
                let asked = &asked;
                runs.push(scope.spawn(move || {
                    let model = format!("{prefix}{model}");
                    let Some(run) = agent.run(url, token, &model, "hi")? else { return Ok(()) };
                    let count = asked(&model, agent);
                    println!("{agent:?}, {model}: {count} of {limit}");
                    ensure!(run.code != 0, "{agent:?} at {model} went well: {}", run.said);
                    ensure!(
                        (1..=limit).contains(&count),
                        "{agent:?}, {model}: {count} of {limit}\n{}",
                        run.said
                    );
                    Ok(())
                }));
            }
        }
        runs.into_iter().map(|run| run.join().map_err(|_| anyhow::anyhow!("a panic")).flatten()).collect()
    });
    let failed: Vec<_> = outcomes.into_iter().filter_map(|run| Some(format!("{:#}", run.err()?))).collect();
    ensure!(failed.is_empty(), "{failed:#?}");
    Ok(())
}

/// Requests for a model of that whole name, by the path that the agent asks.
fn asked(server: &ScriptedModel, model: &str, path: Option<&str>) -> usize {
    let is_it = |request: &&iop_tests::model::Request| {
        request.body["model"] == model && path.is_none_or(|path| request.path == path)
    };
    server.requests().iter().filter(is_it).count()
}

const fn path_of(agent: Agent) -> &'static str {
    match agent {
        Agent::Claude => "/v1/messages",
        Agent::Codex => "/v1/responses",
    }
}

#[test]
fn each_agent_does_its_task_at_the_provider_itself() -> anyhow::Result<()> {
    let server = ScriptedModel::start(&[Surface::Responses, Surface::Messages])?;
    for agent in [Agent::Claude, Agent::Codex] {
        agent.does_the_task(&format!("{}/v1", server.url()), "any", "agent")?;
    }
    ensure!(server.refused().is_empty(), "{:#?}", server.refused());
    Ok(())
}

#[test]
fn each_agent_asks_a_provider_that_fails_no_more_than_is_known_of_it() -> anyhow::Result<()> {
    let server = ScriptedModel::start(&[Surface::Responses, Surface::Messages])?;
    failures(&format!("{}/v1", server.url()), "any", ["", ""], |model, agent| {
        asked(&server, model, Some(path_of(agent)))
    })
}

/// One agent's task through Edge and Node, at a provider whose models' names begin so.
fn does_the_task(agent: Agent, prefix: &str) -> anyhow::Result<()> {
    let stand = Stand::start()?;
    if agent.does_the_task(&stand.url(), stand.site.token(), &format!("{prefix}agent"))? {
        stand.is_clean()?;
        eventually(SOON, "nothing runs", || Ok(stand.leases()? == 0.0))?;
        for outcome in ["client_gone", "internal", "bad_framing"] {
            ensure!(stand.outcomes(outcome)? == 0.0, "{outcome}");
        }
    }
    Ok(())
}

#[test]
fn claude_code_does_its_task_where_messages_are_spoken() -> anyhow::Result<()> {
    does_the_task(Agent::Claude, "anthropic/")
}

#[test]
fn claude_code_does_its_task_at_a_provider_of_chat_completions_alone() -> anyhow::Result<()> {
    does_the_task(Agent::Claude, "chat/")
}

#[test]
fn codex_does_its_task_where_responses_are_spoken() -> anyhow::Result<()> {
    does_the_task(Agent::Codex, "openai/")
}

#[test]
fn codex_does_its_task_at_a_provider_of_chat_completions_alone() -> anyhow::Result<()> {
    does_the_task(Agent::Codex, "chat/")
}

#[test]
fn each_agent_asks_no_more_often_through_the_edge() -> anyhow::Result<()> {
    let stand = Stand::start()?;
    failures(&stand.url(), stand.site.token(), ["anthropic/", "openai/"], |model, agent| match agent {
        Agent::Claude => asked(&stand.anthropic, model, None),
        Agent::Codex => asked(&stand.openai, model, None),
    })
}

#[test]
fn each_agent_asks_no_more_often_where_the_edge_translates() -> anyhow::Result<()> {
    for agent in [Agent::Claude, Agent::Codex] {
        let stand = Stand::start()?;
        let other = match agent {
            Agent::Claude => ["chat/", "openai/"],
            Agent::Codex => ["anthropic/", "chat/"],
        };
        failures(&stand.url(), stand.site.token(), other, |model, of| match of {
            _ if of == agent => asked(&stand.chat, model, None),
            Agent::Claude => asked(&stand.anthropic, model, None),
            Agent::Codex => asked(&stand.openai, model, None),
        })?;
    }
    Ok(())
}

#[test]
fn each_agent_takes_the_edges_own_refusals_for_what_they_are() -> anyhow::Result<()> {
    for (agent, wrong_token, no_model) in [(Agent::Claude, 1.0, 2.0), (Agent::Codex, 6.0, 1.0)] {
        let stand = Stand::start()?;
        let Some(run) = agent.run(&stand.url(), "wrong", "chat/agent", "hi")? else { continue };
        let count = stand.outcomes("unauthorized")?;
        ensure!(
            run.code != 0 && count >= 1.0 && count <= wrong_token,
            "{agent:?}: {count} times\n{}",
            run.said
        );
        agent.run(&stand.url(), stand.site.token(), "none", "hi")?;
        let count = stand.outcomes("unknown_model")?;
        ensure!(count >= 1.0 && count <= no_model, "{agent:?}: {count} times");
    }
    Ok(())
}

/// llama.cpp's own server behind an Edge that translates, or lets through what this server speaks itself.
fn takes_a_turn_on_llama_cpp(agent: Agent) -> anyhow::Result<()> {
    let Some(python) = peer("IOP_TEST_PYTHON")? else { return Ok(()) };
    let site = site()?;
    let engine = Engine::start(&python, site.dir(), engine::Context::Long)?;
    let provider = |id: &str, profile: &str| ProviderYaml {
        extra: format!("profile: {profile}"),
        ..ProviderYaml::new(id, NODE, &engine.base_url(), id)
    };
    let edge =
        site.edge(&yaml().with(provider("tiny", "openai_compat")).with(provider("tiny-raw", "llama_cpp")))?;
    let (_node, _) = start_node(&site, NODE, &edge.node)?;
    let models: &[&str] = if agent == Agent::Codex { &["tiny", "tiny-raw"] } else { &["tiny"] };
    for model in models {
        let url = format!("http://{}/v1", edge.http);
        let Some(run) = agent.run(&url, site.token(), model, "hi")? else { return Ok(()) };
        ensure!(run.code == 0, "{agent:?} on {model}: {}", run.said);
        println!("{agent:?} on {model}: {}", run.said.lines().last().unwrap_or_default());
        eventually(SOON, "nothing runs", || Ok(metric(&edge, "iop_edge_leases")? == 0.0))?;
    }
    Ok(())
}

#[test]
fn claude_code_takes_a_turn_on_llama_cpp() -> anyhow::Result<()> {
    takes_a_turn_on_llama_cpp(Agent::Claude)
}

#[test]
fn codex_takes_a_turn_on_llama_cpp() -> anyhow::Result<()> {
    takes_a_turn_on_llama_cpp(Agent::Codex)
}
