//! `cargo xtask dev`: the whole product on this machine in one command.

mod complete;
mod provider;

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use anyhow::Context;

use crate::cmd;
use iop_tests::{EdgeYaml, ProviderYaml, Site};
use provider::Provider;

/// Options of `dev`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Exit after the first completion: 0 when it came through whole.
    #[arg(long)]
    once: bool,
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: std::net::SocketAddr,
    /// Base URL of an OpenAI-compatible server to use, such as `http://127.0.0.1:8000/v1`.
    #[arg(long)]
    provider: Option<String>,
    /// Take the scripted provider, whatever runs on the usual ports.
    #[arg(long, conflicts_with = "provider")]
    scripted: bool,
    /// For the test of this command: kill the Node before the completion, which must then fail.
    #[arg(long, hide = true)]
    kill_node_first: bool,
}

/// Set where the programs are built already, with the tests: by CI, which builds everything once.
pub const BUILT: &str = "IOP_DEV_BUILT";

/// The Edge's admin socket, in the site's directory.
const ADMIN_SOCKET: &str = "admin.sock";

/// Set by SIGINT and SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

/// Runs it.
///
/// # Errors
/// Something does not build or start, or the completion does not come through.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if std::env::var_os(BUILT).is_none() {
        cmd::run("cargo", &["build", "-p", "iop-edge", "-p", "iop-node", "-p", "iop-perf"])?;
    }
    let bin = cmd::target_dir().join("debug");
    watch_signals()?;
    let site = Site::make(&bin)?;

    let provider = Provider::find(options.provider.as_deref(), options.scripted, &site)?;
    println!("provider   {}", provider.describe());
    let mut yaml = EdgeYaml::new().with(ProviderYaml::new(
        "dev-provider",
        "dev-node",
        provider.base_url(),
        provider.model(),
    ));
    yaml.http = options.listen.to_string();
    yaml.admin_socket = ADMIN_SOCKET.to_owned();
    yaml.pool = "queue_timeout_ms: 5000".to_owned();
    let edge = site.edge(&yaml)?;
    println!("edge       http://{} (pid {})", edge.http, edge.process.pid());
    let mut node = site.node("dev-node", &edge)?;
    println!("node       ready (pid {})", node.pid());
    if options.kill_node_first {
        node.kill();
        println!("node       killed");
    }

    let base_url = format!("http://{}/v1", edge.http);
    println!("\nPOST {base_url}/chat/completions, model {}:\n", provider.model());
    if !complete(&base_url, site.token(), provider.model())? {
        return Ok(());
    }
    if options.once {
        return Ok(());
    }
    print_usage(&base_url, site.token(), provider.model(), site.dir());
    println!("status     http://{}/status", edge.ops);
    let (program, socket) = (site.program("iop-edge"), site.dir().join(ADMIN_SOCKET));
    println!("           {} status --socket {}", program.display(), socket.display());
    println!("\nCtrl-C stops everything.");
    let mut edge = edge.process;
    while !STOP.load(SeqCst) {
        std::thread::sleep(Duration::from_millis(100));
        for (name, process) in [("edge", &mut edge), ("node", &mut node)] {
            anyhow::ensure!(
                process.is_running()?,
                "the {name} has ended; its log is {}",
                process.log().display()
            );
        }
    }
    println!("\nstopping");
    Ok(())
}

/// Streams a completion; `false` when the user stopped it. A prefill may be silent for minutes, so the wait for it must not
/// be what keeps a Ctrl-C waiting.
fn complete(base_url: &str, token: &str, model: &str) -> anyhow::Result<bool> {
    let (done, is_done) = std::sync::mpsc::channel();
    let (base_url, token, model) = (base_url.to_owned(), token.to_owned(), model.to_owned());
    std::thread::spawn(move || {
        let _nobody_waits = done.send(complete::stream(&base_url, &token, &model));
    });
    while !STOP.load(SeqCst) {
        if let Ok(result) = is_done.recv_timeout(Duration::from_millis(50)) {
            return result.context("the completion failed").map(|()| true);
        }
    }
    Ok(false)
}

fn print_usage(base_url: &str, token: &str, model: &str, dir: &Path) {
    println!("\nbase URL   {base_url}\ntoken      {token}\nlogs       {}\n", dir.display());
    println!(
        "curl -N {base_url}/chat/completions -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \\\n     \
         -d '{{\"model\":\"{model}\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n"
    );
}

/// SIGINT and SIGTERM end the wait instead of the process, so that the children are ended and the files removed.
fn watch_signals() -> anyhow::Result<()> {
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            STOP.store(true, SeqCst);
        }
    });
    Ok(())
}
