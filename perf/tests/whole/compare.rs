//! `iop-perf compare` as a process, with the scripted provider itself as the subject.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn compare(dir: &Path, subjects: &str, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_iop-perf"))
        .args([
            "compare",
            "--subject",
            subjects,
            "--scenario",
            "paced200",
            "--rounds",
            "1",
            "--rounds-max",
            "1",
        ])
        .args(["--reference", "direct", "--subjects", dir.to_str().unwrap()])
        .args(options)
        .output()
        .unwrap()
}

/// A subject that is a second provider, started by a shell that leaves its process id in `NAME.pid`.
fn write_subject(dir: &Path, name: &str) {
    let text = format!(
        "name: {name}\nsetup: [{{ run: [echo, word-of, {name}], take: {{ mine: 'word-of ' }} }}]\n\
         files: {{ start: 'echo $$ > {dir}/@mine@.pid; exec @bin@/iop-perf provider --listen 127.0.0.1:@port:a@' }}\n\
         processes: [{{ name: p, run: [sh, '@dir@/start'], ready: 'listening ' }}]\nurl: 'http://127.0.0.1:@port:a@'\n",
        dir = dir.display()
    );
    std::fs::write(dir.join(format!("{name}.yaml")), text).unwrap();
}

fn is_running(dir: &Path, name: &str) -> bool {
    let pid = std::fs::read_to_string(dir.join(format!("{name}.pid"))).unwrap();
    Path::new("/proc").join(pid.trim()).exists()
}

#[test]
fn subjects_are_started_measured_byte_by_byte_judged_and_ended() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("direct.yaml"), "name: direct\nurl: 'http://@provider@'\n").unwrap();
    write_subject(dir.path(), "a");
    write_subject(dir.path(), "b");
    let json = dir.path().join("out.json");
    let gates = ["--gate", "a/b paced200 cpu <= 1000", "--gate", "b/a paced200 cpu <= 0.0001"];
    let html = dir.path().join("out.html");
    let files = ["--json", json.to_str().unwrap(), "--html", html.to_str().unwrap()];
    let output = compare(dir.path(), "direct,a,b", &[gates.as_slice(), &files].concat());
    let (table, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "a gate that does not hold is exit 1: {table}{said}");
    assert!(
        table.contains("PASS       a/b paced200 cpu <= 1000")
            && table.contains("FAIL       b/a paced200 cpu <= 0.0001")
    );
    let result: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let reports: Vec<&Value> =
        result["measurements"].as_array().unwrap().iter().map(|m| &m["report"]).collect();
    assert_eq!(reports.len(), 3);
    for report in &reports {
        assert_eq!((&report["ok"], &report["sealed"]), (&200.into(), &200.into()));
        assert_eq!(report["body_bytes"], reports[0]["body_bytes"]);
    }
    let cost = |subject: usize| result["tables"][0]["rows"][subject]["cost_us"]["mid"].as_f64();
    assert!(cost(0).is_none() && cost(1) > Some(0.0) && cost(2) > Some(0.0), "{result:#}");
    assert!(!is_running(dir.path(), "a") && !is_running(dir.path(), "b"));
    let page = std::fs::read_to_string(html).unwrap();
    for part in
        ["1 of 2</span> required lines hold", "'a/b paced200 cpu", "word-of", "paced200: CPU per event"]
    {
        assert!(page.contains(&part.replace('\'', "&#39;")), "{part}: {page}");
    }
}

/// A file of goals: `a` is measured in the first block alone, `b` in both.
#[test]
fn a_file_of_goals_says_what_is_measured_on_what_and_judges_it() {
    let dir = tempfile::tempdir().unwrap();
    write_subject(dir.path(), "a");
    write_subject(dir.path(), "b");
    let goals = dir.path().join("goals.yaml");
    std::fs::write(
        &goals,
        "reference: b\nblocks: [{ scenarios: [sat64], rounds: 1, rounds_max: 1 }, { scenarios: [newconn], rounds: 1, rounds_max: 1 }]\n\
         lines: [{ name: events, required: ['a/b sat64 cpu <= 1000'], goal: ['a/b sat64 cpu <= 0.0001'] },\n\
         { name: requests, required: ['b.p newconn cpu <= 1000000'], note: 'b alone' }]\n",
    )
    .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_iop-perf"))
        .args(["compare", "--json", "-", "--goals", goals.to_str().unwrap()])
        .args(["--subjects", dir.path().to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "a goal that is not met is no failure: {said}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let measured: Vec<(&str, &str)> = result["measurements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["scenario"].as_str().unwrap(), m["subject"].as_str().unwrap()))
        .collect();
    assert_eq!(measured, [("sat64", "b"), ("sat64", "a"), ("newconn", "b")]);
    let verdicts: Vec<(&str, &str, bool)> = result["verdicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| (v["line"].as_str().unwrap(), v["level"].as_str().unwrap(), v["pass"].as_bool().unwrap()))
        .collect();
    assert_eq!(
        verdicts,
        [("events", "required", true), ("events", "goal", false), ("requests", "required", true)]
    );
    assert!(said.contains("starting a") && said.matches("starting b").count() == 1, "{said}");
}

#[test]
fn what_keeps_a_subject_from_starting_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text, reason) in [
        ("needy", "needs: { no-such-program: ask somebody }\nurl: 'http://127.0.0.1:1'", "ask somebody"),
        (
            "dead",
            "processes: [{ name: p, run: [sh, -c, 'echo last words; exit 3'] }]\nurl: 'http://127.0.0.1:1'",
            "last words",
        ),
        ("wrong", "setup: [{ run: [sh, -c, 'echo oh >&2; exit 1'] }]\nurl: 'http://127.0.0.1:1'", "oh"),
    ] {
        std::fs::write(dir.path().join(format!("{name}.yaml")), format!("name: {name}\n{text}\n")).unwrap();
        let output = compare(dir.path(), name, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{name}: {said}");
    }
}
