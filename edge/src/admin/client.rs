//! The commands' end of the admin socket: one GET over HTTP/1.1, blocking.

use std::{
    io::{self, Read, Write},
    os::unix::{fs::FileTypeExt, net::UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::BytesMut;
use dataplane::http::{
    h1::{
        body::{BodyDecoder, BodyFault, Decoded, Truncated},
        parse::{HeadFault, HeadScan},
    },
    head::Method,
    limits::Limits,
};

/// How long the Edge may say nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes read at a time.
const READ: usize = 64 * 1024;

/// Why there is no answer. The text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing stands at the path.
    #[error(
        "there is no admin socket at {}: is the Edge running? Its log names its socket (`key=listen.admin_socket`), and --socket says where to look",
        .0.display()
    )]
    Missing(PathBuf),
    /// A socket without a listener.
    #[error("no Edge listens on {}: the one that made it is gone", .0.display())]
    NotRunning(PathBuf),
    /// Not ours to open.
    #[error("{} may be opened only by the user that the Edge runs as", .0.display())]
    Forbidden(PathBuf),
    /// A file or directory.
    #[error("{} is no socket", .0.display())]
    NotASocket(PathBuf),
    /// The connection failed otherwise, or broke.
    #[error("the connection to {} failed", .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// What answers is no Edge.
    #[error("{} answers, but not as an Edge does: {}", .0.display(), .1)]
    NotAnEdge(PathBuf, String),
    /// The Edge answers with an error.
    #[error("the Edge answers with status {0}: {1}")]
    Refused(u16, String),
    /// What was read cannot be written.
    #[error("cannot write the answer")]
    Sink(#[source] io::Error),
}

/// Asks the Edge that serves on `socket` for `target`, and hands its answer to `sink` as it comes.
///
/// # Errors
/// [`ClientError`]; `sink` may have had a part of the answer then.
pub fn get(
    socket: &Path,
    target: &str,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), ClientError> {
    let mut stream = connect(socket)?;
    let broken = |error| ClientError::Io(socket.to_owned(), error);
    let strange = |what: String| ClientError::NotAnEdge(socket.to_owned(), what);
    let request = format!("GET {target} HTTP/1.1\r\nhost: iop-edge\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(broken)?;

    let (limits, mut received, mut scan) = (Limits::default(), BytesMut::new(), HeadScan::default());
    let head = loop {
        let head = scan.response_head(&mut received, &limits);
        if let Some(head) = head.map_err(|fault: HeadFault| strange(fault.to_string()))? {
            break head;
        }
        if read(&mut stream, &mut received).map_err(broken)? == 0 {
            return Err(strange("it says nothing of HTTP".to_owned()));
        }
    };
    let mut body = BodyDecoder::for_response(&head, &Method::Get, &limits)
        .map_err(|fault| strange(fault.to_string()))?;
    let mut refusal = Vec::new();
    loop {
        match body.decode(&mut received).map_err(|fault: BodyFault| strange(fault.to_string()))? {
            Decoded::Data(bytes) if head.status == 200 => sink(&bytes).map_err(ClientError::Sink)?,
            Decoded::Data(bytes) => refusal.extend_from_slice(&bytes),
            Decoded::NeedMore => {
                if read(&mut stream, &mut received).map_err(broken)? == 0 {
                    body.finish_at_eof().map_err(|error: Truncated| strange(error.to_string()))?;
                    break;
                }
            }
            Decoded::End => break,
        }
    }
    match head.status {
        200 => Ok(()),
        status => Err(ClientError::Refused(status, String::from_utf8_lossy(&refusal).trim().to_owned())),
    }
}

fn connect(socket: &Path) -> Result<UnixStream, ClientError> {
    let path = socket.to_owned();
    let is_socket = || std::fs::metadata(socket).map_or(true, |found| found.file_type().is_socket());
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ClientError::Missing(path.clone()),
        io::ErrorKind::PermissionDenied => ClientError::Forbidden(path.clone()),
        io::ErrorKind::ConnectionRefused if !is_socket() => ClientError::NotASocket(path.clone()),
        io::ErrorKind::ConnectionRefused => ClientError::NotRunning(path.clone()),
        _ => ClientError::Io(path.clone(), error),
    })?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
        .map_err(|error| ClientError::Io(path, error))?;
    Ok(stream)
}

/// Appends what comes; 0 = the end.
fn read(stream: &mut UnixStream, into: &mut BytesMut) -> io::Result<usize> {
    let mut buffer = vec![0; READ];
    loop {
        match stream.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A read that waited for as long as it may.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the Edge does not answer"));
            }
            read => {
                let n = read?;
                into.extend_from_slice(buffer.get(..n).unwrap_or_default());
                return Ok(n);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// What the client makes of an Edge that answers with `answer`.
    fn answered(answer: &'static str) -> Result<String, ClientError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let edge = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                asked.extend_from_slice(&byte);
            }
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let mut told = Vec::new();
        let got = get(&path, "/status", &mut |bytes| {
            told.extend_from_slice(bytes);
            Ok(())
        });
        edge.join().unwrap();
        got.map(|()| String::from_utf8(told).unwrap())
    }

    #[test]
    fn an_answer_is_taken_in_every_framing_and_only_whole() {
        assert_eq!(answered("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap(), "ok");
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n";
        assert_eq!(answered(chunked).unwrap(), "ok!");
        for cut in
            ["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok", "HTTP/1.1 200 OK\r\n", "", "hello\r\n\r\n"]
        {
            assert!(matches!(answered(cut), Err(ClientError::NotAnEdge(..))), "{cut}");
        }
        let refused = answered("HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\n\r\nno.\r\n").unwrap_err();
        assert_eq!(refused.to_string(), "the Edge answers with status 404: no.");
    }

    #[test]
    fn what_is_wrong_with_the_socket_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let ask = |path: &Path| get(path, "/status", &mut |_| Ok(())).unwrap_err().to_string();
        let path = dir.path().join("a.sock");
        assert!(ask(&path).contains("is the Edge running?"));
        drop(UnixListener::bind(&path).unwrap());
        assert!(ask(&path).contains("the one that made it is gone"));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(ask(&file).ends_with("is no socket"), "{}", ask(&file));
    }
}
