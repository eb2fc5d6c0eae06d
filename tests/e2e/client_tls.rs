//! Clients that come by HTTPS: curl and the openai SDK, over real certificates, while those are renewed.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, ensure};
use iop_tests::{EdgeYaml, http, site::path};

use crate::{
    sdk,
    support::{
        Bench, MODEL, NODE,
        certs::{Identity, presented},
        eventually, metric, provider_at, site, start_node, steady_address, yaml,
    },
};

/// Edge with HTTPS on one port of both families and plain HTTP beside it, Node and provider.
struct Secure {
    bench: Bench,
    ca: Identity,
    /// `localhost:PORT`
    host: String,
    /// `127.0.0.1:PORT`
    address: String,
}

/// What a run of curl gave.
#[derive(Debug)]
struct Curled {
    code: i32,
    out: String,
    said: String,
}

fn start() -> anyhow::Result<Secure> {
    let (site, ca) = (site()?, Identity::authority("web-ca")?);
    std::fs::write(site.dir().join("web-ca.crt"), &ca.cert)?;
    write(site.dir(), &Identity::server(&["localhost"], &ca)?)?;
    let address = steady_address()?;
    let port = address.rsplit(':').next().context("a port")?;
    let listen = format!(
        "https: [\"0.0.0.0:{port}\", \"[::]:{port}\"], tls: {{ cert_file: web.crt, key_file: web.key }}"
    );
    let host = format!("localhost:{port}");
    // Large uploads are not what this is about.
    let extra = "long_context_threshold_tokens: 1000000000\n".to_owned();
    let provider = site.provider(&[])?;
    let edge = site.edge(&EdgeYaml { listen, extra, ..yaml().with(provider_at(&provider.base_url())) })?;
    let (node, node_ops) = start_node(&site, NODE, &edge.node)?;
    let bench = Bench { node, node_ops, edge, provider, site, panics: false };
    Ok(Secure { bench, ca, host, address })
}

/// As a tool that renews does it: each file by a rename.
fn write(dir: &Path, identity: &Identity) -> anyhow::Result<()> {
    for (name, text) in [("web.crt", &identity.cert), ("web.key", &identity.key)] {
        let new = dir.join(format!("{name}.new"));
        std::fs::write(&new, text)?;
        std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        std::fs::rename(new, dir.join(name))?;
    }
    Ok(())
}

impl Secure {
    fn file(&self, name: &str) -> PathBuf {
        self.bench.site.dir().join(name)
    }

    /// A curl that trusts the CA, with the token and a time limit.
    fn curl(&self, args: &[&str]) -> anyhow::Result<Command> {
        let mut command = Command::new("curl");
        command.args(["-sSN", "--max-time", "120", "--cacert", path(&self.file("web-ca.crt"))?]);
        command.arg("-H").arg(format!("authorization: Bearer {}", self.bench.site.token()));
        command.args(["-H", "content-type: application/json"]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    fn run(&self, args: &[&str]) -> anyhow::Result<Curled> {
        let output = self.curl(args)?.output().context("curl")?;
        Ok(Curled {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            said: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}/v1{path}", self.host)
    }

    fn outcome(&self, outcome: &str) -> anyhow::Result<f64> {
        metric(&self.bench.edge, &format!("iop_edge_client_handshakes_total{{outcome=\"{outcome}\"}}"))
    }
}

fn chat(stream: bool, script: &str) -> String {
    http::chat_body(MODEL, stream, script).to_string()
}

#[test]
fn curl_streams_uploads_and_gets_its_errors_by_https_over_both_families() -> anyhow::Result<()> {
    let secure = start()?;
    let chats = secure.url("/chat/completions");
    let body = chat(true, "events=50");
    for how in [
        &["-4", "--http1.1"][..],
        &["-6", "--http1.1"],
        &["--tls-max", "1.2", "--http1.1"],
        // Its stream ends with the connection.
        &["--http1.0"],
    ] {
        let streamed = secure.run(&[how, &["-d", &body, &chats]].concat())?;
        assert_eq!(streamed.code, 0, "{how:?}: {streamed:?}");
        assert!(streamed.out.trim_end().ends_with("data: [DONE]"), "{how:?}: {}", streamed.out);
    }
    let good = secure.outcome("ok")?;
    assert!(good >= 4.0, "{good}");

    let wrong = ["-H", "x-api-key: wrong", "-w", "%{http_code}", &secure.url("/models")];
    let refused = secure.run(&wrong)?;
    assert!(refused.out.contains("invalid_api_key") && refused.out.ends_with("401"), "{refused:?}");

    // Some megabytes, for which curl asks whether it may go on.
    let large =
        chat(false, "").replacen("\"content\":\"", &format!("\"content\":\"{}", "x".repeat(8 << 20)), 1);
    ensure!(large.len() > 8 << 20, "the body has a content");
    std::fs::write(secure.file("large.json"), large)?;
    let data = format!("@{}", path(&secure.file("large.json"))?);
    let sent =
        secure.run(&["--http1.1", "-H", "expect: 100-continue", "-i", "--data-binary", &data, &chats])?;
    assert!(sent.out.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{}", sent.said);

    let huge = secure.file("huge.json");
    std::fs::write(&huge, vec![b' '; 40 << 20])?;
    let data = format!("@{}", path(&huge)?);
    let refused = secure.run(&["--http1.1", "-w", "%{http_code}", "--data-binary", &data, &chats])?;
    assert!(refused.out.ends_with("413"), "{refused:?}");
    secure.bench.settles()
}

#[test]
fn a_client_that_speaks_the_wrong_protocol_or_trusts_another_ca_learns_what_is_wrong() -> anyhow::Result<()> {
    let secure = start()?;
    let plain = secure.run(&["-w", "%{http_code}", &format!("http://{}/v1/models", secure.host)])?;
    assert!(plain.out.ends_with("400") && plain.out.contains("write https:// in the base URL"), "{plain:?}");
    assert_eq!(secure.outcome("not_tls")?, 1.0);

    let port = secure.bench.edge.http.rsplit(':').next().context("a port")?;
    let hello = secure.run(&[&format!("https://localhost:{port}/v1/models")])?;
    assert_eq!(hello.code, 35, "{hello:?}");
    assert!(hello.said.contains("wrong version number"), "{hello:?}");
    let line = secure.bench.edge.process.line_with("wrong protocol")?;
    assert!(line.is_some(), "the Edge's log says so");

    let stranger = Identity::authority("other-ca")?;
    std::fs::write(secure.file("other-ca.crt"), stranger.cert)?;
    let other = secure.file("other-ca.crt");
    let refused = secure.run(&["--cacert", path(&other)?, &secure.url("/models")])?;
    assert_eq!(refused.code, 60, "{refused:?}");
    eventually(http::PATIENCE, "the Edge hears of it", || Ok(secure.outcome("refused_by_client")? == 1.0))?;

    let old = secure.run(&["--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0", &secure.url("/models")])?;
    assert_eq!(old.code, 35, "{old:?}");
    secure.bench.settles()
}

#[test]
fn the_openai_sdk_streams_by_https_and_stops_the_provider_when_it_leaves() -> anyhow::Result<()> {
    let Some(python) = sdk::python()? else { return Ok(()) };
    let secure = start()?;
    let output = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk/openai_client.py"))
        .args([&format!("https://{}/v1", secure.host), secure.bench.site.token(), MODEL, "leaving"])
        .env("SSL_CERT_FILE", secure.file("web-ca.crt"))
        .output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    secure.bench.settles()?;
    assert!(secure.bench.seen("aborts_seen")? >= 1);
    Ok(())
}

#[test]
fn certificates_are_renewed_under_streams_that_lose_nothing_and_broken_files_change_nothing()
-> anyhow::Result<()> {
    const ROTATIONS: usize = 50;
    let secure = start()?;
    let body = chat(true, "events=1000 gap=20ms");
    let chats = secure.url("/chat/completions");
    let mut streams = Vec::new();
    for _ in 0..4 {
        // Nobody reads the pipe before the end; a stream is longer than it holds.
        let out = secure.file(&format!("stream-{}", streams.len()));
        let file = path(&out)?.to_owned();
        streams.push((secure.curl(&["-o", &file, "-d", &body, &chats])?.spawn()?, out));
    }
    eventually(http::PATIENCE, "the streams run", || Ok(secure.bench.seen("requests_started")? == 4))?;
    for round in 0..ROTATIONS {
        let identity = Identity::server(&["localhost"], &secure.ca)?;
        write(secure.bench.site.dir(), &identity)?;
        let wanted = identity.chain()?.remove(0);
        eventually(http::PATIENCE, "a new connection gets the renewed certificate", || {
            Ok(presented(&secure.address)? == wanted)
        })
        .with_context(|| format!("rotation {round}"))?;
    }
    let reloads = "iop_edge_client_certificate_reloads_total{outcome=\"ok\"}";
    assert_eq!(metric(&secure.bench.edge, reloads)?, ROTATIONS as f64);

    // A key of another certificate: what is presented stays.
    let before = presented(&secure.address)?;
    let good = Identity::of_files(&secure.file("web.crt"), &secure.file("web.key"))?;
    write(
        secure.bench.site.dir(),
        &Identity { key: Identity::server(&["x"], &secure.ca)?.key, ..good.clone() },
    )?;
    let current = || metric(&secure.bench.edge, "iop_edge_client_certificate_current");
    eventually(http::PATIENCE, "the broken files are found", || Ok(current()? == 0.0))?;
    assert_eq!(presented(&secure.address)?, before);
    let line = secure.bench.edge.process.line_with("cannot be used: the one that is presented stays")?;
    assert!(line.is_some_and(|line| line.contains("does not belong to the first certificate")));
    write(secure.bench.site.dir(), &good)?;
    eventually(http::PATIENCE, "the files are good again", || Ok(current()? == 1.0))?;

    for (stream, out) in streams {
        let ended = stream.wait_with_output()?;
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let text = std::fs::read_to_string(out)?;
        assert!(text.trim_end().ends_with("data: [DONE]"), "{} bytes", text.len());
    }
    secure.bench.settles()
}

#[test]
fn an_edge_does_not_start_on_files_that_it_cannot_present_and_says_where_they_are_named() -> anyhow::Result<()>
{
    let site = site()?;
    let ca = Identity::authority("web-ca")?;
    let listen = "https: [\"127.0.0.1:0\"], tls: { cert_file: web.crt, key_file: web.key }".to_owned();
    let config = site.configure(&EdgeYaml { listen, ..yaml() })?;
    let checked = || -> anyhow::Result<(i32, String)> {
        let output = Command::new(site.program("iop-edge"))
            .args(["config", "check", "--strict", "--config", path(&config)?])
            .output()?;
        Ok((output.status.code().unwrap_or(-1), String::from_utf8(output.stdout)?))
    };
    let (code, text) = checked()?;
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("edge.yaml:2:") && text.contains("listen.tls.cert_file: `serve` would refuse"),
        "{text}"
    );
    assert!(text.contains("web.crt is not there"), "{text}");
    let one = Identity::server(&["localhost"], &ca)?;
    write(site.dir(), &Identity { key: Identity::server(&["localhost"], &ca)?.key, ..one.clone() })?;
    let (_, text) = checked()?;
    assert!(text.contains("listen.tls.key_file") && text.contains("does not belong"), "{text}");
    let output =
        Command::new(site.program("iop-edge")).args(["serve", "--config", path(&config)?]).output()?;
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("edge.yaml:2:") && said.contains("listen.tls.key_file"), "{said}");
    write(site.dir(), &one)?;
    let (_, text) = checked()?;
    assert!(!text.contains("listen.tls."), "{text}");
    Ok(())
}
