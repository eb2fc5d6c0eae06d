//! The rules that ARCHITECTURE.md states as absences, read from the manifests and sources themselves.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};

/// Which crate may use which, by directory.
const ARROWS: [(&str, &[&str]); 6] = [
    ("proto", &[]),
    ("control", &["proto"]),
    ("dataplane", &["proto"]),
    ("edge", &["control", "dataplane", "proto"]),
    ("node", &["dataplane", "proto"]),
    ("perf", &[]),
];
/// Where `unsafe` may stand.
const UNSAFE: [&str; 3] =
    ["dataplane/src/net/", "dataplane/src/shard/affinity.rs", "dataplane/src/shard/heap.rs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn is_matrix_only() -> bool {
    std::env::var("IOP_TEST_MATRIX_ONLY").is_ok_and(|v| v == "1")
}

/// Whether a whole file is compiled for tests only.
fn is_test_file(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs")
}

/// Every Rust source below `dir`, by its path from the workspace's root.
fn sources(dir: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let name = path.strip_prefix(root())?.to_string_lossy().into_owned();
            found.push((name, read(&path)?));
        }
    }
    Ok(found)
}

/// The dependencies of a manifest by section, resolved to the workspace's own crates by directory name.
fn own_dependencies(manifest: &str) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
            // `[dependencies.NAME]` names one in its header.
            if let Some((table, name)) = section.clone().split_once("dependencies.") {
                all.entry(format!("{table}dependencies")).or_default().push(name.to_owned());
            }
        } else if section.ends_with("dependencies") {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            all.entry(section.clone()).or_default().push(name.to_owned());
            // A renamed package is the package.
            if let Some((_, rest)) = line.split_once("package = \"") {
                all.entry(section.clone())
                    .or_default()
                    .push(rest.split('"').next().unwrap_or_default().to_owned());
            }
        }
    }
    let own = |name: &String| {
        let name = name.trim_matches('"').trim_start_matches("iop-");
        ["tests", "xtask"]
            .into_iter()
            .chain(ARROWS.map(|(dir, _)| dir))
            .find(|dir| *dir == name)
            .map(str::to_owned)
    };
    all.into_iter().map(|(section, names)| (section, names.iter().filter_map(own).collect())).collect()
}

#[test]
fn crates_use_only_what_the_arrows_allow() -> anyhow::Result<()> {
    for (dir, allowed) in ARROWS {
        let manifest = read(&root().join(dir).join("Cargo.toml"))?;
        let dependencies = own_dependencies(&manifest);
        for (section, used) in &dependencies {
            for other in used {
                ensure!(allowed.contains(&&**other), "{dir} must not use {other} ({section})");
            }
        }
        // The reader must have seen something, or it proves nothing.
        ensure!(
            allowed.is_empty() || dependencies.values().any(|used| !used.is_empty()),
            "{dir}: no arrow was read"
        );
    }
    Ok(())
}

#[test]
fn the_arrow_reader_sees_every_way_to_write_a_dependency() {
    for manifest in [
        "[dependencies]\ncontrol.workspace = true\n",
        "[dependencies]\ncontrol = { workspace = true }\n",
        "[dependencies]\nother = { package = \"iop-control\", path = \"../control\" }\n",
        "[dependencies.control]\npath = \"../control\"\n",
        "[dev-dependencies]\niop-control = { path = \"../control\" }\n",
        "[target.'cfg(unix)'.dependencies]\ncontrol.workspace = true\n",
    ] {
        let found: Vec<_> = own_dependencies(manifest).into_values().flatten().collect();
        assert_eq!(found, ["control"], "{manifest}");
    }
}

#[test]
fn the_pure_crates_are_no_std() -> anyhow::Result<()> {
    for dir in ["control", "proto"] {
        let lib = read(&root().join(dir).join("src/lib.rs"))?;
        ensure!(lib.lines().any(|line| line == "#![no_std]"), "{dir}/src/lib.rs is not no_std");
        for (name, text) in sources(&root().join(dir).join("src"))? {
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            ensure!(!product.contains("std::net") && !product.contains("std::time::Instant::now"), "{name}");
        }
    }
    Ok(())
}

#[test]
fn no_second_runtime_comes_in_by_a_dependency() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    for package in ["iop-dataplane", "iop-control", "iop-proto"] {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "-p", package, "-e", "normal,features", "-i", "tokio"])
            .current_dir(root())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            // It is not in the tree at all.
            ensure!(
                said.contains("did not match any packages") || said.contains("nothing to print"),
                "{said}"
            );
            continue;
        }
        let tree = String::from_utf8_lossy(&output.stdout);
        for feature in ["rt", "rt-multi-thread", "net", "time", "full", "fs", "process"] {
            ensure!(
                !tree.contains(&format!("tokio feature \"{feature}\"")),
                "{package} turns on tokio's {feature}:\n{tree}"
            );
        }
    }
    Ok(())
}

#[test]
fn unsafe_code_stands_only_where_the_map_says() -> anyhow::Result<()> {
    let mut seen = 0;
    for (dir, _) in ARROWS {
        for (name, text) in sources(&root().join(dir).join("src"))? {
            let has = text.lines().any(|line| {
                let code = line.split("//").next().unwrap_or_default();
                ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
                    .iter()
                    .any(|word| code.contains(word))
            });
            seen += usize::from(has);
            // The load generator and provider are no part of the product.
            let allowed = dir == "perf" || UNSAFE.iter().any(|place| name.starts_with(place));
            ensure!(!has || allowed, "{name} holds unsafe code");
        }
    }
    ensure!(seen > 0, "no unsafe code was found at all: the search is broken");
    Ok(())
}

#[test]
fn only_the_clock_reads_the_clock_and_only_the_guard_spawns() -> anyhow::Result<()> {
    for (dir, _) in ARROWS.into_iter().filter(|(dir, _)| *dir != "perf") {
        for (name, text) in
            sources(&root().join(dir).join("src"))?.into_iter().filter(|(name, _)| !is_test_file(name))
        {
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            let code: String =
                product.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
            let clock = code.contains("Instant::now()") || code.contains("SystemTime::now()");
            ensure!(!clock || name.starts_with("dataplane/src/clock"), "{name} reads the clock");
            ensure!(
                !code.contains("monoio::spawn(") || name.starts_with("dataplane/src/shard/"),
                "{name} spawns"
            );
        }
    }
    Ok(())
}

/// Where hooks for tests are read; the feature that brings them in; what every variable of theirs begins with.
const HOOKS: (&str, &str, &str) = ("dataplane/src/test_hooks.rs", "test-hooks", "IOP_TEST_");

#[test]
fn hooks_for_tests_are_in_no_release() -> anyhow::Result<()> {
    let (home, feature, variables) = HOOKS;
    let gate = format!("#[cfg(feature = \"{feature}\")]");
    let mut uses = 0;
    for (dir, _) in ARROWS {
        let manifest = read(&root().join(dir).join("Cargo.toml"))?;
        for line in manifest.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let declares = line.trim_start().starts_with(&format!("{feature} = ["));
            ensure!(declares || !line.contains(feature), "{dir}/Cargo.toml turns on {feature}: {line}");
        }
        if dir == "perf" {
            continue;
        }
        for (name, text) in sources(&root().join(dir).join("src"))?.iter().filter(|(name, _)| name != home) {
            ensure!(!text.contains(variables), "{name} reads a variable of tests");
            let lines: Vec<_> =
                text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
            for at in (0..lines.len()).filter(|at| lines[*at].contains("test_hooks")) {
                uses += 1;
                let gated = lines[at.saturating_sub(1)..at].iter().any(|line| line.trim() == gate);
                ensure!(gated, "{name}: `{}` stands without {gate} in front of it", lines[at].trim());
            }
        }
    }
    ensure!(
        uses >= 2 && read(&root().join(home))?.contains(variables),
        "no hook was found: the search is broken"
    );
    let workspace = read(&root().join("Cargo.toml"))?;
    ensure!(!workspace.contains(feature), "the workspace turns on {feature}");
    Ok(())
}

#[test]
fn a_program_that_was_built_as_people_build_it_knows_no_hook() -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let bin = own.parent().and_then(Path::parent).context("the test executable is in target/*/deps")?;
    let has = |program: &Path, text: &str| -> anyhow::Result<bool> {
        let bytes = std::fs::read(program)
            .with_context(|| format!("{} is missing: run `cargo build` for it first", program.display()))?;
        Ok(bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    };
    for program in ["iop-edge", "iop-node"] {
        let program = bin.join(program);
        ensure!(has(&program, "IOP_DRIVER")?, "no variable was found: the search is broken");
        let hooks = has(&program, HOOKS.2)?;
        ensure!(!hooks, "{} was built with the feature {}", program.display(), HOOKS.1);
    }
    Ok(())
}

#[test]
fn only_one_place_maps_faults_to_http() -> anyhow::Result<()> {
    for (name, text) in sources(&root().join("edge/src"))? {
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_home = name.starts_with("edge/src/reply/") || is_test_file(&name);
        ensure!(
            is_home || !product.contains("\"invalid_request_error\""),
            "{name} makes an error of its own"
        );
        let is_control =
            name == "edge/src/control_loop.rs" || name == "edge/src/boot.rs" || is_test_file(&name);
        ensure!(is_control || !product.contains("control::Machine"), "{name} touches the machine");
    }
    Ok(())
}

/// Where frames and bytes are carried between peers: what stands there knows of no surface.
const TRANSPORT: [&str; 3] = ["edge/src/link/", "dataplane/src/", "node/src/session/"];
/// The two places that make a response head: one reads a peer's, one is the surfaces' own; and where the type is.
const HEADS: [&str; 3] =
    ["dataplane/src/http/h1/parse.rs", "edge/src/response.rs", "dataplane/src/http/head.rs"];

/// What in a source makes a response for a surface although its place is the transport's; `None`: nothing does.
fn surface_response(name: &str, text: &str) -> Option<&'static str> {
    let product = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = product.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let has = |words: &[&'static str]| words.iter().copied().find(|word| code.contains(word));
    if is_test_file(name) {
        return None;
    }
    let heads = has(&["ResponseHead {", "ResponseHead::new("]).filter(|_| !HEADS.contains(&name));
    if heads.is_some() || !TRANSPORT.iter().any(|place| name.starts_with(place)) {
        return heads;
    }
    // Status lines are the codec's, and `hop` knows the media types that it looks for.
    let status_line =
        has(&["b\"HTTP/1", "\"HTTP/1."]).filter(|_| !name.starts_with("dataplane/src/http/h1/"));
    let media = has(&["application/json", "text/event-stream", "text/html", "text/plain"])
        .filter(|_| name != "dataplane/src/http/hop.rs");
    // The dataplane cannot name the Edge's modules, and the link has no business with them or with clients' connections.
    let modules = has(&[
        "reply::",
        "response::{",
        "crate::response",
        "surface::",
        "openai::",
        "anthropic::",
        "translate::",
    ])
    .filter(|_| name.starts_with("edge/"));
    let client = has(&["http::server", "ResponseBody"]).filter(|_| !name.starts_with("dataplane/src/http/"));
    let words =
        has(&["chat.completion", "response.created", "message_start", "jsonrpc", "invalid_request_error"]);
    status_line.or(media).or(modules).or(client).or(words)
}

// req: FRB-2
#[test]
fn no_response_of_a_surface_is_built_where_frames_are_carried() -> anyhow::Result<()> {
    let (mut transport, mut heads) = (0, BTreeSet::new());
    for (dir, _) in ARROWS.into_iter().filter(|(dir, _)| *dir != "perf") {
        for (name, text) in sources(&root().join(dir).join("src"))? {
            if let Some(what) = surface_response(&name, &text) {
                anyhow::bail!("{name} builds a response of a surface: {what}");
            }
            transport += usize::from(TRANSPORT.iter().any(|place| name.starts_with(place)));
            if text.contains("ResponseHead {") && !is_test_file(&name) {
                heads.insert(name);
            }
        }
    }
    ensure!(
        transport > 50 && HEADS.iter().all(|head| heads.contains(*head)),
        "the search is broken: {heads:?}"
    );
    Ok(())
}

#[test]
fn the_search_for_responses_of_surfaces_sees_each_way_to_build_one() {
    let link = "edge/src/link/handler.rs";
    let relay = "dataplane/src/relay/mod.rs";
    for (name, code) in [
        (link, "let head = ResponseHead::new(503);"),
        (link, "let head = ResponseHead { headers, ..own };"),
        (link, "client.write_all(b\"HTTP/1.1 503 Service Unavailable\\r\\n\\r\\n\");"),
        (link, "use crate::{reply::Fault, mail::Frame};"),
        (link, "let begun = crate::response::relayed(502, &[], &answer);"),
        (link, "use dataplane::http::server::Connection;"),
        (link, "headers.set(\"content-type\", \"application/json\");"),
        (relay, "let head = ResponseHead::new(503);"),
        (relay, "out.extend_from_slice(b\"HTTP/1.1 200 OK\");"),
        (relay, "out.push_str(\"{\\\"jsonrpc\\\":\\\"2.0\\\"}\");"),
        (relay, "out.push_str(\"event: message_start\");"),
        ("node/src/session/mod.rs", "let head = ResponseHead::new(200);"),
        ("edge/src/dispatch/session.rs", "let head = ResponseHead::new(200);"),
    ] {
        assert!(surface_response(name, code).is_some(), "{name}: {code}");
        assert!(surface_response(name, &format!("// {code}")).is_none(), "a comment: {code}");
    }
    assert_eq!(surface_response("edge/src/response.rs", "ResponseHead::new(200)"), None);
}

/// Names of metrics in `text`: each `start` and the letters, digits and underscores behind it.
fn metric_names(text: &str, start: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    // In sources `start` begins with the quote, which is no part of the name.
    let prefix = start.trim_start_matches('"');
    let rests = text.split(start).skip(1);
    rests
        .map(|rest| rest.split(|c| !is_part(c)).next().unwrap_or_default())
        .map(|end| format!("{prefix}{end}"))
        .collect()
}

#[test]
fn the_metrics_page_names_every_metric_and_no_other() -> anyhow::Result<()> {
    let page = read(&root().join("docs/metrics.md"))?;
    for (source, prefix) in [("edge/src/metrics", "iop_edge_"), ("node/src/metrics.rs", "iop_node_")] {
        let place = root().join(source);
        let texts = if place.is_dir() { sources(&place)? } else { vec![(source.to_owned(), read(&place)?)] };
        let product = texts.iter().map(|(_, text)| text.split("#[cfg(test)]").next().unwrap_or_default());
        let registered = metric_names(&product.collect::<String>(), &format!("\"{prefix}"));
        let described = metric_names(&page, prefix);
        // The reader must have seen something, or it proves nothing.
        ensure!(registered.len() >= 10, "{source}: only {registered:?} were found");
        let missing: Vec<_> = registered.difference(&described).collect();
        ensure!(missing.is_empty(), "docs/metrics.md lacks {missing:?} of {source}");
        let stale: Vec<_> = described.difference(&registered).collect();
        ensure!(stale.is_empty(), "docs/metrics.md names {stale:?}, which {source} does not register");
    }
    Ok(())
}

#[test]
fn every_example_configuration_loads_in_the_programs() -> anyhow::Result<()> {
    if is_matrix_only() {
        return Ok(());
    }
    let own = std::env::current_exe()?;
    let bin = own.parent().and_then(Path::parent).context("the test executable is in target/*/deps")?;
    let edge = bin.join("iop-edge");
    ensure!(
        edge.exists(),
        "{} is missing: run `cargo build -p iop-edge -p iop-node -p iop-perf` first",
        edge.display()
    );
    let dir = tempfile::tempdir()?;
    let pki = dir.path().join("pki");
    // What the examples expect to find beside them.
    for args in [
        vec!["pki", "init", "--dir", "pki", "--edge", "edge-1", "--advertise", "edge.example.org:9443"],
        vec!["pki", "issue", "node", "box1", "--dir", "pki", "--bundle", "box1.yaml"],
    ] {
        let made = Command::new(&edge).args(&args).current_dir(dir.path()).output()?;
        ensure!(made.status.success(), "{args:?}: {}", String::from_utf8_lossy(&made.stderr));
    }
    let bundle = read(&dir.path().join("box1.yaml"))?;
    for (key, file) in [("cert_pem", "node.crt"), ("key_pem", "node.key"), ("edge_ca_pem", "edge-ca.crt")] {
        let lines = bundle.lines().skip_while(|line| line.trim() != format!("{key}: |")).skip(1);
        let pem: String =
            lines.take_while(|l| l.starts_with("    ")).map(|l| format!("{}\n", l.trim())).collect();
        std::fs::write(dir.path().join(file), pem)?;
    }
    ensure!(pki.join("edge.crt").exists());

    let mut checked = 0;
    for entry in std::fs::read_dir(root().join("configs"))? {
        let example = entry?.path();
        let Some(name) = example.file_name().and_then(|n| n.to_str()).filter(|n| n.ends_with(".yaml")) else {
            continue;
        };
        let copy = dir.path().join(format!("example-{name}"));
        std::fs::copy(&example, &copy)?;
        let (program, command): (_, &[&str]) = if name.starts_with("node") {
            ("iop-node", &["check"])
        } else {
            ("iop-edge", &["config", "check"])
        };
        let output = Command::new(bin.join(program))
            .args(command)
            .arg("--config")
            .arg(&copy)
            .env("IOP_ADVERTISE", "edge.example.org:9443")
            .env("IOP_TOKEN_HASH_LAPTOP", "0123456789abcdef".repeat(4))
            .env("IOP_VLLM_HOST", "127.0.0.1")
            .output()?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        checked += 1;
    }
    ensure!(checked >= 2, "configs/ has an example of both programs");
    Ok(())
}
