//! Dumps, encodings and what programs write.

use super::{Named, named};
use crate::gate::repeat::tests::Numbers;

fn objects(object: &str, times: usize) -> String {
    format!("[\n{}\n]", vec![format!("  {object}"); times].join(",\n"))
}

pub(super) fn texts() -> Vec<Named> {
    let mut numbers = Numbers(77);
    let mut texts = Vec::new();
    for bytes in [300, 1500, 3000, 6000] {
        texts.push(named(format!("base64 of {bytes} zeros"), "A".repeat(bytes * 4 / 3) + "=="));
        let lines = format!("{}\n", "A".repeat(76)).repeat(bytes / 57);
        texts.push(named(format!("base64 of {bytes} zeros in lines"), lines));
        texts.push(named(format!("hex of {bytes} zeros"), "00".repeat(bytes.min(4000))));
        texts.push(named(format!("hex of {bytes} ones"), "ff".repeat(bytes.min(4000))));
        let dump = |i: usize| format!("{:08x}: {}  {}\n", i * 16, "0000 ".repeat(8), ".".repeat(16));
        texts.push(named(format!("xxd of {bytes} zeros"), (0..bytes / 16).map(dump).collect::<String>()));
    }
    texts.push(named("hex bytes", "00 ".repeat(2700)));
    texts.push(named("hex bytes in lines", ("FF ".repeat(15) + "FF\n").repeat(150)));
    texts.push(named("hd without offsets", ("00 ".repeat(16) + "|" + &".".repeat(16) + "|\n").repeat(100)));
    texts.push(named("escaped bytes", "\\x00".repeat(1600)));
    texts.push(named("bytes of c", "0x00, ".repeat(1024)));
    texts.push(named("bits", "01".repeat(2000)));
    texts.push(named("bits in bytes", "00000000 ".repeat(800)));
    texts.push(named("zeros", "0".repeat(5000)));
    texts.push(named("a third", format!("0.{}", "3".repeat(2000))));
    texts.push(named("a seventh", format!("0.{}", "142857".repeat(500))));
    texts.push(named("a power of ten", format!("1{}", "0".repeat(1000))));
    let alphabet: Vec<char> =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".chars().collect();
    texts.push(named("base64 with equal lines", (numbers.text(&alphabet, 76) + "\n").repeat(20)));
    for motif in ["CAG", "ATTTC", "GATA", "TTAGGG", "A"] {
        texts.push(named(format!("dna of {motif}"), motif.repeat(1800 / motif.len())));
        let lines = format!(">chr1\n{}", format!("{}\n", motif.repeat(60 / motif.len())).repeat(60));
        texts.push(named(format!("fasta of {motif}"), lines));
    }
    for (i, object) in [
        "{}", "{\"id\": 0, \"name\": \"\", \"active\": false}", "{ \"x\": 0, \"y\": 0, \"z\": 0 }", "null", "[0, 0, 0, 255]",
        "{\"type\": \"text\", \"text\": \"placeholder\"}", "[]", "\"\"", "\"lorem ipsum\"", "true",
        "{\"user\": {\"name\": \"John Doe\", \"email\": \"john@example.com\", \"roles\": [\"user\"]}, \"ok\": true}",
    ]
    .into_iter()
    .enumerate()
    {
        let times = 70;
        texts.push(named(format!("json {i} in lines"), objects(object, times)));
        texts.push(named(format!("json {i} in one line"), format!("[{}]", vec![object; times].join(","))));
        texts.push(named(format!("json lines {i}"), format!("{object}\n").repeat(times)));
    }
    texts.push(named("matrix of zeros", format!("[{}]\n", ["0"; 50].join(", ")).repeat(50)));
    texts.push(named("matrix of numpy", format!(" [{}]\n", ["0."; 30].join(" ")).repeat(60)));
    texts.push(named("embedding of zeros", format!("[{}]", ["0.0"; 1536].join(","))));
    texts.push(named(
        "tensor",
        format!("[{}],\n", format!("[{}],", ["0"; 3].join(",")).repeat(32)).repeat(25),
    ));
    texts.push(named("picture in one colour", "#000000,".repeat(1024)));
    texts.push(named("nested lists", "[".repeat(500) + &"]".repeat(500)));
    for (i, line) in [
        "Connection refused",
        "ERROR: timeout",
        "[WARN] retrying in 5 seconds...",
        "ok",
        "GET /health HTTP/1.1 200 OK",
        "2026-12-01T00:00:00Z INFO server: heartbeat",
        "test result: ok. 0 passed; 0 failed",
        "Compiling... done",
    ]
    .into_iter()
    .enumerate()
    {
        texts.push(named(format!("log of equal lines {i}"), format!("{line}\n").repeat(90)));
        let timed = |at: usize| format!("12:{:02}:{:02} {line}\n", at / 60 % 60, at % 60);
        texts.push(named(format!("log of lines with times {i}"), (0..600).map(timed).collect::<String>()));
    }
    texts.push(named(
        "tests that passed",
        (0..400).map(|i| format!("test case_{i} ... ok\n")).collect::<String>(),
    ));
    texts.push(named("dots of pytest", format!("{} [ 10%]\n", ".".repeat(72)).repeat(20)));
    texts.push(named("dots of a runner", ".".repeat(2500)));
    texts.push(named("checks of a runner", "  ✓ works\n".repeat(200)));
    let row = "INSERT INTO users (id, name, email, active) VALUES (NULL, '', '', 0);\n";
    texts.push(named("sql inserts", row.repeat(100)));
    let values = format!("INSERT INTO t VALUES\n{};\n", vec!["(0, 0, 0, NULL)"; 300].join(",\n"));
    texts.push(named("sql values", values));
    let counted = |i: usize| format!("INSERT INTO t (id, v) VALUES ({i}, 'x');\n");
    texts.push(named("sql inserts that count", (0..500).map(counted).collect::<String>()));
    let patch = |i: usize| format!("@@ -{i},3 +{i},3 @@\n context\n-    foo();\n+    bar();\n context\n");
    texts.push(named("diff", (1..200).map(patch).collect::<String>()));
    texts.push(named("diff of removed lines", "-    old_call();\n".repeat(150)));
    texts.push(named("diff of empty lines", "+\n".repeat(500)));
    texts.push(named("moves back and forth", (1..60).map(|i| format!("{i}. Nf3 Nf6 ")).collect::<String>()));
    texts.push(named("moves of a game", "Ng1 Ng8 Nf3 Nf6 ".repeat(50)));
    let subtitle =
        |i: usize| format!("{i}\n00:00:{:02},000 --> 00:00:{:02},500\n[Music]\n\n", i % 60, i % 60);
    texts.push(named("subtitles", (1..200).map(subtitle).collect::<String>()));
    texts.push(named("guitar tab", format!("e|{0}\nB|{0}\nG|{0}\n\n", "--0--2--0--3-".repeat(5)).repeat(20)));
    texts.push(named("morse", "... --- ... / ".repeat(100)));
    texts.push(named("drums", "x---x---x---x---|".repeat(100)));
    texts.push(named("unix permissions", "-rw-r--r-- 1 root root 0 Jan 1 00:00 empty\n".repeat(100)));
    texts.push(named("svg path", "M0 0L10 0L10 10L0 10Z".repeat(100)));
    texts.push(named("gcode", "G1 X0 Y0\nG1 X10 Y0\nG1 X10 Y10\nG1 X0 Y10\n".repeat(80)));
    texts
}
