//! A site: one directory with certificates, a token and a configuration, and the processes on it.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use anyhow::{Context, bail};

use crate::{EdgeYaml, Process};

/// The Edge's workload name.
const EDGE: &str = "edge-1";

/// Files of one site; removed when dropped.
#[derive(Debug)]
pub struct Site {
    dir: tempfile::TempDir,
    bin: PathBuf,
    token: String,
    token_entry: String,
    env: Vec<(String, String)>,
    count: AtomicUsize,
}

/// A running Edge and where it listens.
#[derive(Debug)]
pub struct Edge {
    /// The process.
    pub process: Process,
    /// `host:port` of clients.
    pub http: String,
    /// `host:port` of Nodes.
    pub node: String,
    /// `host:port` of operators.
    pub ops: String,
}

/// A running scripted provider.
#[derive(Debug)]
pub struct Provider {
    /// The process.
    pub process: Process,
    /// `http://host:port`.
    pub url: String,
}

impl Provider {
    /// With `/v1`.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.url)
    }
}

impl Site {
    /// Certificates and a token, made by the programs in `bin`.
    ///
    /// # Errors
    /// One of the tools fails; what it said is in the error.
    pub fn make(bin: &Path) -> anyhow::Result<Self> {
        let mut dir = tempfile::Builder::new().prefix("iop-").tempdir()?;
        if std::env::var_os("IOP_TEST_KEEP").is_some() {
            eprintln!("kept: {}", dir.path().display());
            dir.disable_cleanup(true);
        }
        let edge = bin.join("iop-edge");
        let pki = dir.path().join("pki");
        tool(&edge, &["pki", "init", "--dir", path(&pki)?, "--edge", EDGE])?;
        let made = tool(&edge, &["token", "new", "--token-ref", "local", "--principal-ref", "local"])?;
        let token = made.lines().next().context("`token new` prints the token first")?.trim().to_owned();
        let token_entry = made
            .lines()
            .skip_while(|l| !l.trim_start().starts_with('-'))
            .map(|l| format!("    {l}\n"))
            .collect();
        Ok(Self { dir, bin: bin.to_owned(), token, token_entry, env: Vec::new(), count: AtomicUsize::new(0) })
    }

    /// Leaves the directory with its logs where it is; gives its path.
    pub fn keep(&mut self) -> &Path {
        self.dir.disable_cleanup(true);
        self.dir.path()
    }

    /// Sets an environment variable of every process that starts from now on.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The clear token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A program of the product.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// Writes `edge.yaml` and gives its path.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn configure(&self, yaml: &EdgeYaml) -> anyhow::Result<PathBuf> {
        let file = self.dir().join("edge.yaml");
        std::fs::write(&file, yaml.render(EDGE, &self.token_entry))?;
        Ok(file)
    }

    /// Writes the configuration, starts an Edge on it and waits until it serves.
    ///
    /// # Errors
    /// It does not come up; its log's end is in the error.
    pub fn edge(&self, yaml: &EdgeYaml) -> anyhow::Result<Edge> {
        let config = self.configure(yaml)?;
        self.edge_on(&config)
    }

    /// Starts an Edge on a file that is there already and waits until it serves.
    ///
    /// # Errors
    /// It does not come up; its log's end is in the error.
    pub fn edge_on(&self, config: &Path) -> anyhow::Result<Edge> {
        let mut process = self.start("edge", "iop-edge", &["serve", "--config", path(config)?])?;
        process.wait_for("edge serving")?;
        self.running(process)
    }

    /// Where an Edge that serves listens.
    ///
    /// # Errors
    /// Its log does not say.
    pub fn running(&self, process: Process) -> anyhow::Result<Edge> {
        let (http, node, ops) = (
            bound(&process, "listen.http")?,
            bound(&process, "listen.node")?,
            bound(&process, "listen.ops")?,
        );
        Ok(Edge { process, http, node, ops })
    }

    /// Issues a join bundle for a Node of `name` that dials `address`.
    ///
    /// # Errors
    /// The tool refuses.
    pub fn join_bundle(&self, name: &str, address: &str) -> anyhow::Result<PathBuf> {
        let bundle = self.dir().join(format!("{name}.join.yaml"));
        if bundle.exists() {
            std::fs::remove_file(&bundle)?;
        }
        let pki = self.dir().join("pki");
        tool(
            &self.program("iop-edge"),
            &[
                "pki",
                "issue",
                "node",
                name,
                "--dir",
                path(&pki)?,
                "--advertise",
                address,
                "--bundle",
                path(&bundle)?,
            ],
        )?;
        Ok(bundle)
    }

    /// Starts a Node and waits until it is ready.
    ///
    /// # Errors
    /// It does not become ready; its log's end is in the error.
    pub fn node(&self, name: &str, edge: &Edge) -> anyhow::Result<Process> {
        let mut node = self.node_unready(name, &edge.node)?;
        node.wait_for("node ready")?;
        Ok(node)
    }

    /// Starts a Node that dials `address`, without waiting.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn node_unready(&self, name: &str, address: &str) -> anyhow::Result<Process> {
        let bundle = self.join_bundle(name, address)?;
        self.start("node", "iop-node", &["run", "--join", path(&bundle)?])
    }

    /// Starts a Node that dials `address` with further top-level YAML in its join file, without waiting.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn node_with(&self, name: &str, address: &str, extra: &str) -> anyhow::Result<Process> {
        let bundle = self.join_bundle(name, address)?;
        let text = std::fs::read_to_string(&bundle)?;
        std::fs::write(&bundle, with_reconnect(&text, extra))?;
        self.start("node", "iop-node", &["run", "--join", path(&bundle)?])
    }

    /// Starts a scripted provider with further arguments.
    ///
    /// # Errors
    /// It does not come up.
    pub fn provider(&self, args: &[&str]) -> anyhow::Result<Provider> {
        self.provider_on("127.0.0.1:0", args)
    }

    /// As [`Site::provider`], on this address.
    ///
    /// # Errors
    /// It does not come up.
    pub fn provider_on(&self, listen: &str, args: &[&str]) -> anyhow::Result<Provider> {
        let mut all = vec!["provider", "--listen", listen];
        all.extend(args);
        let mut process = self.start("provider", "iop-perf", &all)?;
        let line = process.wait_for("listening http://")?;
        let url = line.split("listening ").nth(1).context("the provider's address")?.trim().to_owned();
        Ok(Provider { process, url })
    }

    /// Starts a program of the product with its log in the site's directory.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, label: &str, program: &str, args: &[&str]) -> anyhow::Result<Process> {
        let number = self.count.fetch_add(1, Relaxed);
        let env: Vec<_> = self.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        Process::start(&format!("{label}-{number}"), &self.program(program), args, &env, self.dir())
    }
}

/// The address the Edge bound for `key`, from its log.
fn bound(edge: &Process, key: &str) -> anyhow::Result<String> {
    let line =
        edge.line_with(&format!("key={key}"))?.with_context(|| format!("the Edge did not log {key}"))?;
    let address = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
    Ok(address.with_context(|| format!("no address in `{line}`"))?.to_owned())
}

/// Runs a tool to its end and gives what it printed.
///
/// # Errors
/// It fails; what it said is in the error.
pub fn tool(program: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(args).output().with_context(|| program.display().to_string())?;
    if !output.status.success() {
        bail!("{} {}: {}", program.display(), args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A join file's text with another line for `reconnect:`.
pub fn with_reconnect(join: &str, line: &str) -> String {
    let kept = join.lines().filter(|l| !l.starts_with("reconnect:")).map(|l| format!("{l}\n"));
    kept.chain([format!("{line}\n")]).collect()
}

/// A path as an argument.
///
/// # Errors
/// It is not UTF-8.
pub fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}
