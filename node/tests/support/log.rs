//! What every Node of a test's process logs.

use std::sync::mpsc::{Receiver, Sender, channel};

#[derive(Clone)]
struct Log(Sender<Vec<u8>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _test_over = self.0.send(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Takes the process's log, once.
pub fn taken() -> Receiver<Vec<u8>> {
    let (sent, log) = channel();
    let writer = Log(sent);
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    log
}

/// All that has been logged since the last look.
pub fn text(log: &Receiver<Vec<u8>>) -> String {
    String::from_utf8(log.try_iter().flatten().collect()).unwrap()
}
