//! Request bodies with a content coding, and under a name that is not theirs, sent by curl as people send them.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Output},
};

use flate2::{Compression, write};
use iop_tests::{EdgeYaml, http};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::support::{Bench, MODEL, assert_error, sha256};

const CHAT: &str = "/v1/chat/completions";

fn gzip(text: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut out = write::GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(text)?;
    Ok(out.finish()?)
}

/// What clients send under each name.
fn codings(text: &[u8]) -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
    let mut zlib = write::ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(text)?;
    let mut raw = write::DeflateEncoder::new(Vec::new(), Compression::default());
    raw.write_all(text)?;
    let mut br = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
    br.write_all(text)?;
    Ok(vec![
        ("gzip", gzip(text)?),
        ("x-gzip", gzip(text)?),
        ("deflate", zlib.finish()?),
        ("deflate", raw.finish()?),
        ("br", br.into_inner()),
        ("zstd", compress_to_vec(text, CompressionLevel::Fastest)),
    ])
}

/// Posts the file by curl; what it printed: the body, a line end and the status.
fn curl(bench: &Bench, body: &Path, args: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new("curl")
        .args(["-sS", "--max-time", "60", "-w", "\n%{http_code}", "--data-binary"])
        .arg(format!("@{}", body.display()))
        .args(["-H", &format!("authorization: Bearer {}", bench.site.token())])
        .args(args)
        .arg(format!("http://{}{CHAT}", bench.edge.http))
        .output()?)
}

// req: TUN-5
#[test]
fn a_body_of_any_coding_reaches_the_provider_plain_and_as_json() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let mut body = http::chat_body(MODEL, false, "");
    for length in [10, 300_000] {
        body["padding"] = (0..length / 10).map(|n| format!("{n:010}")).collect::<String>().into();
        let text = body.to_string();
        for (name, coded) in codings(text.as_bytes())? {
            let path = bench.site.dir().join("body");
            std::fs::write(&path, &coded)?;
            for kind in ["Application/JSON; charset=utf-8", "application/x-www-form-urlencoded", ""] {
                let (coding, kind_field) =
                    (format!("content-encoding: {name}"), format!("content-type: {kind}"));
                let out = curl(&bench, &path, &["-H", &coding, "-H", kind_field.trim_end_matches(' ')])?;
                let printed = String::from_utf8_lossy(&out.stdout).into_owned();
                assert!(
                    out.status.success() && printed.ends_with("\n200"),
                    "{name} {kind}: {printed} {out:?}"
                );
                let seen = bench.stats()?["last"].clone();
                assert_eq!(seen["body_sha256"].as_str(), Some(&*sha256(text.as_bytes())), "{name}");
                let fields = seen["headers"].as_array().cloned().unwrap_or_default();
                let value = |wanted: &str| {
                    let named =
                        fields.iter().find(|f| f[0].as_str().is_some_and(|n| n.eq_ignore_ascii_case(wanted)));
                    named.and_then(|field| field[1].as_str()).map(str::to_owned)
                };
                assert_eq!(value("content-encoding"), None, "{name}");
                assert_eq!(value("content-length"), Some(text.len().to_string()), "{name}");
                let sent = if kind.starts_with("App") { kind } else { "application/json" };
                assert_eq!(value("content-type").as_deref(), Some(sent), "{name} {kind}");
            }
        }
    }
    bench.settles()
}

#[test]
fn a_coding_that_is_not_understood_or_does_not_hold_is_told_by_its_name() -> anyhow::Result<()> {
    let bench =
        Bench::with(&[], |p| p, |edge| EdgeYaml { limits: "body_bytes: 3000000".to_owned(), ..edge })?;
    let ask = |coding: &str, body: &[u8]| -> anyhow::Result<http::Answer> {
        let mut client = bench.client()?;
        client.send(format!(
            "POST {CHAT} HTTP/1.1\r\nhost: e\r\nauthorization: Bearer {}\r\ncontent-encoding: {coding}\r\n\
             content-length: {}\r\n\r\n",
            bench.site.token(),
            body.len()
        ))?;
        client.send(body)?;
        client.answer()
    };
    let text = http::chat_body(MODEL, false, "").to_string();
    for coding in ["compress", "gzip, gzip", "br, gzip", "aws-chunked"] {
        let answer = ask(coding, text.as_bytes())?;
        assert_error(&answer, 415, None);
        assert_eq!(answer.header("accept-encoding"), Some("gzip, deflate, br, zstd"), "{coding}");
        assert!(answer.text().contains("zstd"), "{}", answer.text());
    }
    assert_eq!(ask("identity", text.as_bytes())?.status, 200);
    for (name, coded) in codings(text.as_bytes())? {
        let coding = name.trim_start_matches("x-");
        for wrong in [text.as_bytes(), &coded[..coded.len() - 1], &[&coded[..], b"\0"].concat()] {
            let answer = ask(name, wrong)?;
            assert_error(&answer, 400, None);
            assert!(answer.text().contains(coding), "{name}: {}", answer.text());
        }
    }
    // Small on the way, large behind it: by its length, and by how many times it grew.
    for (name, coded) in codings(&vec![b' '; 20_000_000])? {
        let answer = ask(name, &coded)?;
        assert_error(&answer, 413, None);
    }
    for (name, coded) in codings(&vec![b' '; 2_900_000])? {
        let answer = ask(name, &coded)?;
        assert_error(&answer, 413, None);
        assert!(answer.text().contains("100 times"), "{name}: {}", answer.text());
    }
    // What is no JSON behind its coding is told as without one.
    let answer = ask("gzip", &gzip(b"{\"model\":")?)?;
    assert_error(&answer, 400, None);
    assert_eq!(bench.seen("requests_started")?, 1);
    assert_eq!(bench.metric("iop_edge_body_memory_bytes")?, 0.0);
    Ok(())
}
