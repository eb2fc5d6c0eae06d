//! The commands that people type before anything runs.

use std::os::unix::fs::PermissionsExt;

use anyhow::Context;
use iop_tests::{
    EdgeYaml, http,
    site::{path, with_reconnect},
};

use crate::support::{Bench, NODE, is_matrix_only, provider_at, run, site, yaml};

#[test]
fn config_check_takes_a_good_file_and_points_into_a_bad_one() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let good = yaml().with(provider_at("http://127.0.0.1:9/v1"));
    let file = site.configure(&good)?;
    let (code, said) = run(&site, "iop-edge", &["config", "check", "--config", path(&file)?])?;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("ok"), "{said}");

    let text = std::fs::read_to_string(&file)?;
    let line = text.lines().position(|line| line.starts_with("provider_pool")).unwrap_or_default() + 1;
    std::fs::write(&file, text.replace("provider_pool: {", "provider_pool: { max_queu: 3,"))?;
    let (code, said) = run(&site, "iop-edge", &["config", "check", "--config", path(&file)?])?;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("{line}:18")), "line and column of the key: {said}");
    assert!(said.contains("max_queu") && said.contains("`max_queue`"), "the nearest name: {said}");
    let (code, said) = run(&site, "iop-edge", &["serve", "--config", path(&file)?])?;
    assert_eq!(code, 1, "{said}");

    let (code, _) = run(&site, "iop-edge", &["config", "check", "--config", "no-such-file.yaml"])?;
    assert_eq!(code, 1);
    Ok(())
}

// req: CFG-11
#[test]
fn config_show_prints_what_loads_again_and_check_exits_by_severity() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let file = site.configure(&yaml().with(provider_at("http://127.0.0.1:9/v1")))?;
    let show = |file: &std::path::Path| -> anyhow::Result<(i32, String)> {
        run(&site, "iop-edge", &["config", "show", "--effective", "--config", path(file)?])
    };
    let (code, shown) = show(&file)?;
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("# default") && shown.contains("# edge.yaml:"), "{shown}");
    let again = file.with_file_name("again.yaml");
    std::fs::write(&again, &shown)?;
    let (code, twice) = show(&again)?;
    assert_eq!(code, 0, "{twice}");
    let values = |text: &str| -> Vec<String> {
        let value = |line: &str| line.split("  # ").next().unwrap_or_default().to_owned();
        text.lines().filter(|line| !line.starts_with('#')).map(value).collect()
    };
    assert_eq!(values(&shown), values(&twice));

    let check = |strict: &[&str]| -> anyhow::Result<i32> {
        let args = [&["config", "check", "--config", path(&again)?], strict].concat();
        Ok(run(&site, "iop-edge", &args)?.0)
    };
    assert_eq!((check(&[])?, check(&["--strict"])?), (0, 0));
    let (tokens, models) = shown.split_once("  revoked_tokens_file:").unwrap_or_default();
    let (before, _) = tokens.split_once("  principal_tokens:").unwrap_or_default();
    std::fs::write(&again, format!("{before}  revoked_tokens_file:{models}"))?;
    assert_eq!((check(&[])?, check(&["--strict"])?), (0, 2), "nobody may call");
    std::fs::write(&again, "openai:\n")?;
    assert_eq!((check(&[])?, check(&["--strict"])?), (1, 1));
    Ok(())
}

#[test]
fn a_token_that_was_just_made_is_accepted_and_stands_nowhere_in_clear() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let bench = Bench::start()?;
    assert_eq!(http::get(&bench.edge.http, "/v1/models", Some(bench.site.token()))?.status, 200);
    let config = std::fs::read_to_string(bench.site.dir().join("edge.yaml"))?;
    assert!(!config.contains(bench.site.token()));
    Ok(())
}

// req: IDN-5
#[test]
fn the_pki_tool_overwrites_nothing_and_keeps_keys_to_their_owner() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let pki = site.dir().join("pki");
    let read = || std::fs::read(pki.join("node-ca.key"));
    let before = read()?;
    let (code, said) = run(&site, "iop-edge", &["pki", "init", "--dir", path(&pki)?, "--edge", "edge-1"])?;
    assert_ne!(code, 0, "{said}");
    assert_eq!(before, read()?);
    let bundle = site.join_bundle(NODE, "127.0.0.1:9443")?;
    let issue = [
        "pki",
        "issue",
        "node",
        NODE,
        "--dir",
        path(&pki)?,
        "--advertise",
        "127.0.0.1:9443",
        "--bundle",
        path(&bundle)?,
    ];
    let (code, said) = run(&site, "iop-edge", &issue)?;
    assert_ne!(code, 0, "{said}");
    for secret in [pki.join("node-ca.key"), pki.join("edge-ca.key"), pki.join("edge.key"), bundle] {
        let mode = std::fs::metadata(&secret)?.permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", secret.display());
    }
    Ok(())
}

// req: REG-9
#[test]
fn node_check_takes_a_join_file_and_says_what_is_wrong_with_another() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let bundle = site.join_bundle(NODE, "127.0.0.1:9443")?;
    let (code, said) = run(&site, "iop-node", &["check", "--join", path(&bundle)?])?;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(NODE), "{said}");
    let text = std::fs::read_to_string(&bundle)?;
    std::fs::write(&bundle, format!("{text}reconect: {{ interval_sec: 1 }}\n"))?;
    let (code, said) = run(&site, "iop-node", &["check", "--join", path(&bundle)?])?;
    assert_eq!(code, 1);
    assert!(said.contains("reconect"), "{said}");
    assert!(!said.contains("PRIVATE KEY"), "{said}");
    Ok(())
}

// req: SUP-3
#[test]
fn reconnect_policies_that_make_no_sense_are_refused() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let bundle = site.join_bundle(NODE, "127.0.0.1:9443")?;
    let text = std::fs::read_to_string(&bundle)?;
    for (policy, good) in [
        ("max_attempts: -1", false),
        ("max_attempts: 0, interval_sec: 0", false),
        ("interval_sec: -5", false),
        ("max_attempts: 3, interval_sec: 0", true),
        ("max_attempts: 0, interval_sec: 1", true),
        ("", true),
    ] {
        std::fs::write(&bundle, with_reconnect(&text, &format!("reconnect: {{ {policy} }}")))?;
        let (code, said) = run(&site, "iop-node", &["check", "--join", path(&bundle)?])?;
        assert_eq!(code == 0, good, "{policy}: {said}");
    }
    Ok(())
}

// req: CFG-11
#[test]
fn a_port_in_use_is_a_start_error() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let bench = Bench::start()?;
    let taken =
        EdgeYaml { http: bench.edge.http.clone(), ..yaml() }.with(provider_at("http://127.0.0.1:9/v1"));
    let file = bench.site.configure(&taken)?;
    let (code, said) = run(&bench.site, "iop-edge", &["serve", "--config", path(&file)?])?;
    assert_eq!(code, 1, "{said}");
    let text = std::fs::read_to_string(&file)?;
    let line = text.lines().position(|line| line.trim_start().starts_with("listen:")).unwrap_or_default() + 1;
    assert!(said.contains(&format!("edge.yaml:{line}:")) && said.contains(": listen.http[0]: "), "{said}");
    assert!(said.contains("the port is in use") && said.contains("write another port here"), "{said}");
    Ok(())
}

#[test]
fn the_default_client_addresses_bind_side_by_side() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    // The default is an IPv4 and an IPv6 wildcard on one port; a free one stands for 8080 here.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let site = site()?;
    let both = EdgeYaml { http: format!("0.0.0.0:{port}\", \"[::]:{port}"), ..yaml() };
    let edge = site.edge(&both.with(provider_at("http://127.0.0.1:9/v1")))?;
    for host in ["127.0.0.1", "[::1]"] {
        let answer = http::get(&format!("{host}:{port}"), "/v1/models", Some(site.token()))?;
        assert_eq!(answer.status, 200, "{host}");
    }
    drop(edge);
    Ok(())
}

#[test]
fn a_log_that_nobody_reads_any_more_ends_no_edge() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let site = site()?;
    let config = site.configure(&yaml().with(provider_at("http://127.0.0.1:9/v1")))?;
    let mut child = std::process::Command::new(site.program("iop-edge"))
        .args(["serve", "--config", path(&config)?])
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    let mut log = std::io::BufReader::new(child.stderr.take().context("a pipe")?);
    let (mut address, mut line) = (String::new(), String::new());
    while !line.contains("edge serving") {
        line.clear();
        anyhow::ensure!(std::io::BufRead::read_line(&mut log, &mut line)? > 0, "it ended");
        if let Some(at) = line.split("key=listen.http address=").nth(1) {
            at.trim().clone_into(&mut address);
        }
    }
    drop(log);
    // Each request is a log line that cannot be written.
    for _ in 0..3 {
        let answer = http::get(&address, "/v1/models", Some(site.token()))?;
        assert_eq!(answer.status, 200);
    }
    assert!(child.try_wait()?.is_none(), "it ended");
    child.kill()?;
    child.wait()?;
    Ok(())
}
