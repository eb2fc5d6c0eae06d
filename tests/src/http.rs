//! A client that keeps out of the way: requests as bytes, answers as bytes, each with a generous bound.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::fd::FromRawFd,
    time::Duration,
};

use anyhow::{Context, bail};

/// No test waits longer for one read.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An answer that was read to its end.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Head as text, lower case names not guaranteed.
    pub head: String,
    /// Body after chunk decoding.
    pub body: Vec<u8>,
    /// Whether the body ended as its framing says.
    pub whole: bool,
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The payload of each `data:` line of an event stream, in order.
    pub fn events(&self) -> Vec<String> {
        let data = |line: &str| line.strip_prefix("data:").map(|data| data.trim().to_owned());
        self.text().lines().filter_map(data).collect()
    }

    /// Whether an event stream came to its `[DONE]`.
    pub fn is_done(&self) -> bool {
        self.events().iter().any(|event| event == "[DONE]")
    }

    /// The `error` objects among the events of a stream.
    pub fn error_events(&self) -> Vec<serde_json::Value> {
        let parsed = |event: &String| serde_json::from_str::<serde_json::Value>(event).ok();
        self.events().iter().filter_map(parsed).filter_map(|event| event.get("error").cloned()).collect()
    }

    /// Checks that a stream came whole, to its `[DONE]`, with exactly the text that the scripted provider sealed.
    #[track_caller]
    pub fn assert_sealed(&self) {
        assert!(self.whole && self.is_done(), "{} {}", self.head, self.tail());
        let (mut text, mut events, mut found) = (String::new(), 0, String::new());
        for event in self.events().iter().filter(|event| *event != "[DONE]") {
            let event: serde_json::Value = serde_json::from_str(event).unwrap_or_default();
            if let Some(content) = event["choices"][0]["delta"]["content"].as_str().filter(|c| !c.is_empty())
            {
                text.push_str(content);
                events += 1;
            }
            if let Some(seal) = event["system_fingerprint"].as_str().filter(|s| s.starts_with("perf-")) {
                seal.clone_into(&mut found);
            }
        }
        assert_eq!(found, seal(&text, events), "{}", self.tail());
    }

    /// What came last, for people.
    pub fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().rev().take(12).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).with_context(|| self.text())
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A connection for raw requests.
#[derive(Debug)]
pub struct Raw {
    /// The socket.
    pub stream: TcpStream,
    /// Whether it ended by a reset.
    pub was_reset: bool,
    rest: Vec<u8>,
}

impl Raw {
    /// Connects to `address`.
    ///
    /// # Errors
    /// Nothing listens.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        Self::over(TcpStream::connect(address).with_context(|| address.to_owned())?)
    }

    /// Over a connection that is there already.
    ///
    /// # Errors
    /// It is not there any more.
    pub fn over(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, was_reset: false, rest: Vec::new() })
    }

    /// As [`Raw::connect`], with a kernel that holds about `unread` bytes for us instead of what it thinks fit.
    ///
    /// # Errors
    /// Nothing listens, or `address` is not one of IPv4.
    pub fn connect_narrow(address: &str, unread: i32) -> anyhow::Result<Self> {
        let to: std::net::SocketAddrV4 = address.parse().with_context(|| address.to_owned())?;
        let name = libc::sockaddr_in {
            sin_family: libc::sa_family_t::try_from(libc::AF_INET)?,
            sin_port: to.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
            sin_zero: [0; 8],
        };
        let failed = || std::io::Error::last_os_error();
        // SAFETY: plain system calls; the descriptor is ours alone, and the pointers are to live locals of the given sizes.
        // The receive buffer must be set before the connection is made: the window is agreed on then.
        let stream = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            anyhow::ensure!(fd >= 0, failed());
            let stream = TcpStream::from_raw_fd(fd);
            let size = libc::socklen_t::try_from(size_of::<i32>())?;
            let set =
                libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, (&raw const unread).cast(), size);
            anyhow::ensure!(set == 0, failed());
            let size = libc::socklen_t::try_from(size_of::<libc::sockaddr_in>())?;
            anyhow::ensure!(libc::connect(fd, (&raw const name).cast(), size) == 0, failed());
            stream
        };
        Self::over(stream)
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
        Ok(self.stream.write_all(bytes.as_ref())?)
    }

    /// Reads until the buffer has a head and gives it, with what came behind it left in place.
    ///
    /// # Errors
    /// The connection ends first.
    pub fn read_head(&mut self) -> anyhow::Result<String> {
        loop {
            if let Some(end) = find(&self.rest, b"\r\n\r\n") {
                let head: Vec<u8> = self.rest.drain(..end + 4).collect();
                return Ok(String::from_utf8(head)?);
            }
            if self.fill()? == 0 {
                bail!("the connection ended in the head: {:?}", String::from_utf8_lossy(&self.rest));
            }
        }
    }

    /// Reads a whole answer.
    ///
    /// # Errors
    /// There is no head, or a read takes too long. A body that ends early is no error: see [`Answer::whole`].
    pub fn answer(&mut self) -> anyhow::Result<Answer> {
        loop {
            let head = self.read_head()?;
            // RFC 9110 section 15.2: any number of interim responses may come first.
            if !head.starts_with("HTTP/1.1 1") {
                return self.body_of(head);
            }
        }
    }

    /// Reads the body that belongs to `head`, which [`Raw::read_head`] gave.
    ///
    /// # Errors
    /// The head has no status, or a read takes too long.
    pub fn body_of(&mut self, head: String) -> anyhow::Result<Answer> {
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).with_context(|| head.clone())?;
        let mut answer = Answer { status, head, body: Vec::new(), whole: false };
        let mut body = Body::of(&answer);
        while self.read_more(&mut body)? {}
        answer.body = body.bytes;
        answer.whole = body.state == BodyState::Whole;
        Ok(answer)
    }

    /// Reads until `body` has at least `length` bytes.
    ///
    /// # Errors
    /// It ends before, or a read takes too long.
    pub fn read_up_to(&mut self, body: &mut Body, length: usize) -> anyhow::Result<()> {
        while body.bytes.len() < length {
            let got = body.bytes.len();
            if !self.read_more(body).with_context(|| format!("{got} of {length} bytes had come"))? {
                bail!("the body ended after {} of {length} bytes", body.bytes.len());
            }
        }
        Ok(())
    }

    /// Takes what is there of `body`, and reads once when nothing is; whether it goes on.
    ///
    /// # Errors
    /// A chunk's size is none, or a read takes too long.
    pub fn read_more(&mut self, body: &mut Body) -> anyhow::Result<bool> {
        loop {
            match body.state {
                BodyState::Whole | BodyState::Cut => return Ok(false),
                BodyState::Length(0) | BodyState::LastChunk => {
                    body.state = BodyState::Whole;
                    return Ok(false);
                }
                BodyState::Size => {
                    if let Some(end) = find(&self.rest, b"\r\n") {
                        let line: Vec<u8> = self.rest.drain(..end + 2).collect();
                        body.state = match usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16)? {
                            0 => BodyState::ChunkEnd(true),
                            size => {
                                body.chunks += 1;
                                BodyState::Chunk(size)
                            }
                        };
                        continue;
                    }
                }
                BodyState::ChunkEnd(last) => {
                    if self.rest.len() >= 2 {
                        self.rest.drain(..2);
                        body.state = if last { BodyState::LastChunk } else { BodyState::Size };
                        continue;
                    }
                }
                BodyState::Length(left) | BodyState::Chunk(left) if !self.rest.is_empty() => {
                    let n = left.min(self.rest.len());
                    body.bytes.extend(self.rest.drain(..n));
                    body.state = match body.state {
                        BodyState::Chunk(_) if n == left => BodyState::ChunkEnd(false),
                        BodyState::Chunk(_) => BodyState::Chunk(left - n),
                        _ => BodyState::Length(left - n),
                    };
                    return Ok(true);
                }
                BodyState::UntilClose if !self.rest.is_empty() => {
                    body.bytes.append(&mut self.rest);
                    return Ok(true);
                }
                BodyState::Length(_) | BodyState::Chunk(_) | BodyState::UntilClose => {}
            }
            if self.fill()? == 0 {
                let proven = body.state != BodyState::UntilClose || self.was_reset;
                body.state = if proven { BodyState::Cut } else { BodyState::Whole };
                return Ok(false);
            }
        }
    }

    /// Reads until `mark` is in what was read and not yet taken.
    ///
    /// # Errors
    /// The connection ends first, or a read takes too long.
    pub fn wait_for(&mut self, mark: &str) -> anyhow::Result<()> {
        match self.until(mark.as_bytes())? {
            Some(_) => Ok(()),
            None => bail!("the connection ended before `{mark}`: {:?}", String::from_utf8_lossy(&self.rest)),
        }
    }

    fn until(&mut self, mark: &[u8]) -> anyhow::Result<Option<usize>> {
        loop {
            if let Some(end) = find(&self.rest, mark) {
                return Ok(Some(end));
            }
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads a line and gives it without its end; `None` when the connection ends first.
    ///
    /// # Errors
    /// A read takes too long.
    pub fn line(&mut self) -> anyhow::Result<Option<String>> {
        let Some(end) = self.until(b"\n")? else { return Ok(None) };
        let line: Vec<u8> = self.rest.drain(..=end).collect();
        Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()))
    }

    /// Reads once; 0 = the end, a reset included.
    ///
    /// # Errors
    /// Nothing came within [`PATIENCE`].
    pub fn fill(&mut self) -> anyhow::Result<usize> {
        let mut buffer = vec![0; 64 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(n) => {
                self.rest.extend_from_slice(&buffer[..n]);
                Ok(n)
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                self.was_reset = true;
                Ok(0)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What was read and not yet taken.
    pub fn buffered(&self) -> &[u8] {
        &self.rest
    }
}

/// A body that is read as it comes.
#[derive(Debug)]
pub struct Body {
    /// What has come, without its framing.
    pub bytes: Vec<u8>,
    /// Chunks that have begun.
    pub chunks: usize,
    state: BodyState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    Length(usize),
    UntilClose,
    Size,
    Chunk(usize),
    /// After a chunk's bytes; the last one has none.
    ChunkEnd(bool),
    LastChunk,
    Whole,
    Cut,
}

impl Body {
    /// The body that the head of `answer` announces.
    pub fn of(answer: &Answer) -> Self {
        let chunked = answer.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
        let length = answer.header("content-length").and_then(|v| v.parse().ok());
        let state = match length {
            _ if chunked => BodyState::Size,
            Some(length) => BodyState::Length(length),
            None => BodyState::UntilClose,
        };
        Self { bytes: Vec::new(), chunks: 0, state }
    }

    /// Whether it came to its end as its framing says.
    pub fn is_whole(&self) -> bool {
        self.state == BodyState::Whole
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() { Some(0) } else { haystack.windows(needle.len()).position(|w| w == needle) }
}

/// The scripted provider's seal (docs/performance.md): FNV-1a of the text, content events, bytes.
pub fn seal(text: &str, events: usize) -> String {
    let fnv = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |fnv, byte| {
        (fnv ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("perf-{fnv:016x}-{events}-{}", text.len())
}

/// The bytes of a chat completion request.
pub fn chat_request(token: &str, body: &serde_json::Value) -> Vec<u8> {
    post("/v1/chat/completions", token, body.to_string().as_bytes())
}

/// The bytes of a POST with a JSON body.
pub fn post(path: &str, token: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nhost: edge\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// A chat completion body for `model`; `script` steers the scripted provider.
pub fn chat_body(model: &str, stream: bool, script: &str) -> serde_json::Value {
    let mut body = serde_json::json!({
        "model": model, "stream": stream, "messages": [{"role": "user", "content": "Hello"}],
    });
    if !script.is_empty() {
        body["user"] = format!("perf:{script}").into();
    }
    body
}

/// One chat completion on a connection of its own.
///
/// # Errors
/// As [`Raw::answer`].
pub fn chat(address: &str, token: &str, body: &serde_json::Value) -> anyhow::Result<Answer> {
    let mut raw = Raw::connect(address)?;
    raw.send(chat_request(token, body))?;
    raw.answer()
}

/// A GET on a connection of its own.
///
/// # Errors
/// As [`Raw::answer`].
pub fn get(address: &str, path: &str, token: Option<&str>) -> anyhow::Result<Answer> {
    let mut raw = Raw::connect(address)?;
    let auth = token.map_or_else(String::new, |t| format!("authorization: Bearer {t}\r\n"));
    raw.send(format!("GET {path} HTTP/1.1\r\nhost: edge\r\nconnection: close\r\n{auth}\r\n"))?;
    raw.answer()
}

/// The value of a metric line whose name and labels are `series`.
pub fn metric(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        (name == series).then(|| value.parse().ok())?
    })
}
