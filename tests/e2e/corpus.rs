//! Requests whose framing is odd, from files: each is answered as its file says, and what the Edge takes for one request followed by
//! another nginx never splits in another way (RFC 9112; security.md §3 rows 1–4, 9–13, §6).
//!
//! A file of `tests/corpus/http1` has a comment, the statuses of all answers on its connection, and the bytes, without the file's
//! own line breaks; `\r`, `\n`, `\t`, `\x00`, `\\` and `${…}` stand for others ([`expand`]). Behind them comes a request for the models,
//! whose answer is the last one where they were taken for a request that ended where it should. `IOP_UPDATE=1` writes the statuses.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use iop_tests::{Process, http, http::Raw};

use crate::support::{Bench, MODEL, skip};

/// At least so many files.
const VECTORS_MIN: usize = 280;

struct Vector {
    file: PathBuf,
    text: String,
    statuses: String,
    bytes: Vec<u8>,
}

impl Vector {
    fn read(file: PathBuf, token: &str, body: &str) -> anyhow::Result<Self> {
        let text = fs::read_to_string(&file)?;
        let is_comment = |line: &&str| line.starts_with("# ") || line.starts_with("= ");
        let statuses = text.lines().find_map(|line| line.strip_prefix("= ")).context("no statuses")?;
        let template: String = text.lines().skip_while(is_comment).collect();
        let bytes = expand(&template, token, body).with_context(|| file.display().to_string())?;
        Ok(Self { statuses: statuses.to_owned(), bytes, file, text })
    }

    fn name(&self) -> String {
        self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The bytes that a template stands for. `${TOKEN}` and `${BODY}` are what a good request has, `${BODY-1}` is the latter without its first
/// byte; `${N}` is its length, `${X}` the same in hexadecimal digits, either with a difference behind it; `${TEXT*COUNT}` repeats.
fn expand(template: &str, token: &str, body: &str) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['\\', '$']) {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        if let Some(inner) = rest.strip_prefix("${") {
            let (name, behind) = inner.split_once('}').context("an open brace")?;
            bytes.extend(named(name, token, body)?);
            rest = behind;
            continue;
        }
        let escaped = rest.as_bytes().get(1).context("a lone backslash")?;
        let length = if *escaped == b'x' { 4 } else { 2 };
        bytes.push(match escaped {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'\\' | b'"' => *escaped,
            b'x' => u8::from_str_radix(rest.get(2..4).context("two digits")?, 16)?,
            other => bail!("an escaped {}", char::from(*other)),
        });
        rest = &rest[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

fn named(name: &str, token: &str, body: &str) -> anyhow::Result<Vec<u8>> {
    if let Some((text, count)) = name.rsplit_once('*') {
        return Ok(expand(text, token, body)?.repeat(count.parse()?));
    }
    let length = i128::try_from(body.len())?;
    let moved = |by: &str| -> anyhow::Result<i128> {
        Ok(match by {
            "" => length,
            "+2^32" => length + (1 << 32),
            "+2^64" => length + (1 << 64),
            by => length + by.parse::<i128>()?,
        })
    };
    Ok(match name {
        "TOKEN" => token.to_owned(),
        "BODY" => body.to_owned(),
        "BODY-1" => body[1..].to_owned(),
        "XX" => format!("{length:X}"),
        "X8" => format!("{length:08x}"),
        "X16" => format!("{length:016x}"),
        _ => match name.split_at_checked(1) {
            Some(("N", by)) => moved(by)?.to_string(),
            Some(("X", by)) => format!("{:x}", moved(by)?),
            _ => bail!("`{name}` is nothing"),
        },
    }
    .into_bytes())
}

fn vectors(token: &str, body: &str) -> anyhow::Result<Vec<Vector>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/http1");
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    files.into_iter().map(|file| Vector::read(file, token, body)).collect()
}

/// The statuses of all answers to these bytes, until the connection ends.
fn answers(address: &str, bytes: &[u8]) -> anyhow::Result<Vec<u16>> {
    let mut client = Raw::connect(address)?;
    let _closed_before_its_end = client.send(bytes);
    let mut statuses = Vec::new();
    while !client.buffered().is_empty() || client.fill()? > 0 {
        statuses.push(client.answer()?.status);
    }
    Ok(statuses)
}

/// One request as it came out of nginx.
struct Seen {
    line: String,
    body: Vec<u8>,
}

/// nginx, and what it sends to the server behind it.
struct Nginx {
    _process: Process,
    _dir: tempfile::TempDir,
    address: String,
    seen: Receiver<Seen>,
}

impl Nginx {
    fn start(program: &Path) -> anyhow::Result<Self> {
        let backend = TcpListener::bind("127.0.0.1:0")?;
        let behind = backend.local_addr()?;
        let (tell, seen) = channel();
        std::thread::spawn(move || {
            for connection in backend.incoming().flatten() {
                let _gone = record(connection, &tell);
            }
        });
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let dir = tempfile::tempdir()?;
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("{kind}_temp_path {}/{kind};", dir.path().display()))
            .collect();
        let config = format!(
            "daemon off; master_process off; pid {0}/pid; error_log {0}/error.log; events {{}} \
             http {{ access_log off; {temporary} client_header_timeout 2s; client_body_timeout 2s; keepalive_timeout 2s; \
             server {{ listen {address}; location / {{ proxy_pass http://{behind}; }} }} }}",
            dir.path().display()
        );
        let file = dir.path().join("nginx.conf");
        fs::write(&file, config)?;
        let mut command = Command::new(program);
        command.arg("-p").arg(dir.path()).arg("-c").arg(&file).arg("-e").arg(dir.path().join("error.log"));
        let process = Process::spawn("nginx", &mut command, dir.path())?;
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(&address).is_err() {
            ensure!(Instant::now() < until, "nginx does not listen: {}", process.text());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { _process: process, _dir: dir, address, seen })
    }

    /// What the server behind it got of these bytes, and the statuses of all answers.
    fn split(&self, bytes: &[u8]) -> (Vec<Seen>, Vec<u16>) {
        // Where nginx says nothing that can be read it has refused.
        let statuses = answers(&self.address, bytes).unwrap_or_default();
        (self.seen.try_iter().collect(), statuses)
    }
}

/// Reads a request of nginx's, which ends as its length says, and answers it.
fn record(mut connection: TcpStream, tell: &Sender<Seen>) -> anyhow::Result<()> {
    connection.set_read_timeout(Some(http::PATIENCE))?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let n = connection.read(&mut buffer)?;
        bytes.extend_from_slice(&buffer[..n]);
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap_or(0))
            });
            let from = end + 4;
            if bytes.len() >= from + length.unwrap_or(0) {
                let line = head.lines().next().unwrap_or_default().to_owned();
                tell.send(Seen { line, body: bytes.split_off(from) })?;
                return Ok(connection.write_all(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok")?);
            }
        }
        ensure!(n > 0, "cut");
    }
}

/// Where nginx finds other requests in the same bytes than the Edge, which answered with `ours`; `None` where it finds the same, or
/// refuses them.
fn differs(ours: &[u16], (seen, theirs): &(Vec<Seen>, Vec<u16>), body: &str) -> Option<String> {
    let refused = theirs.len() != seen.len() || theirs.iter().any(|status| *status != 200);
    let told = || {
        let lines: Vec<String> =
            seen.iter().map(|seen| format!("{:?} and {} bytes", seen.line, seen.body.len())).collect();
        format!("the Edge answers {ours:?}, nginx {theirs:?} and sees {lines:?}")
    };
    // The Edge's first answer is one to exactly this body.
    let is_same_body = |seen: &Seen| {
        ours.first() != Some(&200) || !seen.line.starts_with("POST") || seen.body == body.as_bytes()
    };
    if seen.first().is_some_and(|first| !is_same_body(first)) {
        return Some(told());
    }
    let took_probe = ours.len() > 1 && ours.last() == Some(&200);
    (took_probe && !refused && seen.len() != ours.len()).then(told)
}

#[test]
fn odd_requests_are_answered_as_their_files_say_and_never_split_as_nginx_would_not() -> anyhow::Result<()> {
    let bench = Bench::start()?;
    let body = http::chat_body(MODEL, false, "").to_string();
    let token = bench.site.token();
    let probe = format!(
        "GET /v1/models HTTP/1.1\r\nhost: probe\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"]
        .iter()
        .map(Path::new)
        .find(|it| it.exists());
    let nginx = match program {
        Some(program) => Some(Nginx::start(program)?),
        None => {
            skip("there is no nginx to compare with")?;
            None
        }
    };
    let update = std::env::var_os("IOP_UPDATE").is_some();
    let vectors = vectors(token, &body)?;
    ensure!(vectors.len() >= VECTORS_MIN, "{} vectors", vectors.len());
    let (mut wrong, mut served, mut compared) = (Vec::new(), 0, 0);
    for vector in &vectors {
        let bytes = [&vector.bytes, probe.as_bytes()].concat();
        let statuses = answers(&bench.edge.http, &bytes).with_context(|| vector.name())?;
        let told: Vec<String> = statuses.iter().map(u16::to_string).collect();
        let told = told.join(" ");
        if update {
            let text =
                vector.text.replacen(&format!("\n= {}\n", vector.statuses), &format!("\n= {told}\n"), 1);
            fs::write(&vector.file, text)?;
        } else if told != vector.statuses {
            wrong.push(format!("{}: {told} instead of {}", vector.name(), vector.statuses));
        }
        served +=
            u64::from(statuses.first() == Some(&200) && vector.bytes.windows(4).any(|it| it == b"POST"));
        if let Some(nginx) = nginx.as_ref().filter(|_| statuses.first() == Some(&200) || statuses.len() > 1) {
            compared += 1;
            wrong.extend(
                differs(&statuses, &nginx.split(&bytes), &body)
                    .map(|how| format!("{}: {how}", vector.name())),
            );
        }
    }
    println!("{} vectors, {served} served, {compared} compared with nginx", vectors.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(bench.seen("requests_started")?, served, "what reached the provider");
    bench.settles()
}

#[test]
fn another_split_than_nginxs_is_found() {
    let seen = |line: &str, body: &str| Seen { line: line.to_owned(), body: body.as_bytes().to_vec() };
    let (post, probe) = ("POST /v1/chat/completions HTTP/1.0", "GET /v1/models HTTP/1.0");
    for (ours, lines, theirs, is_found) in [
        (&[200, 200][..], vec![seen(post, "body"), seen(probe, "")], &[200, 200][..], false),
        (&[200, 200], vec![seen(post, "bo"), seen(probe, "")], &[200, 200], true),
        (&[200, 200], vec![seen(post, "bodyGET /v1/models")], &[200], true),
        (
            &[200, 200],
            vec![seen(post, "body"), seen("GET /smuggled HTTP/1.0", ""), seen(probe, "")],
            &[200, 200, 200],
            true,
        ),
        (
            &[404, 200],
            vec![seen(post, ""), seen("GET /smuggled HTTP/1.0", ""), seen(probe, "")],
            &[200, 200, 200],
            true,
        ),
        (&[200, 200], vec![], &[400], false),
        (&[200], vec![seen(post, "body")], &[200], false),
        (&[400], vec![seen(post, "body"), seen(probe, "")], &[200, 200], false),
    ] {
        let split = (lines, theirs.to_vec());
        assert_eq!(differs(ours, &split, "body").is_some(), is_found, "{ours:?} and {theirs:?}");
    }
}

#[test]
fn a_template_stands_for_its_bytes() -> anyhow::Result<()> {
    for (template, bytes) in [
        ("a\\r\\n\\t\\\\\\x00\\xff\\\"b", &b"a\r\n\t\\\x00\xff\"b"[..]),
        ("${N} ${N+1} ${N-1} ${X} ${XX} ${X+2} ${X8}", b"12 13 11 c C e 0000000c"),
        ("${N+2^32} ${X16}", b"4294967308 000000000000000c"),
        ("${TOKEN}${BODY-1}${ab\\n*2}", b"twelve byteab\nab\n"),
    ] {
        let body = "0twelve byte";
        assert_eq!(expand(template, "", body)?, bytes, "{template}");
    }
    for wrong in ["${N", "${Q}", "\\q", "\\", "\\xzz", "${a*b}"] {
        assert!(expand(wrong, "", "body").is_err(), "{wrong}");
    }
    Ok(())
}
