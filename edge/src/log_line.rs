//! Log lines as text: the form of tracing-subscriber's own formatter without colours, written at a fraction of its cost. There is one
//! line for each request, and the usual formatter would take a sixth of all the instructions of a request.

use std::{
    cell::RefCell,
    error::Error,
    fmt::{self, Debug, Write as _},
    io::Write as _,
    time::Duration,
};

use dataplane::{
    clock,
    log::{LineGatherer, LogWriter},
};
use time::OffsetDateTime;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{Layer, fmt::MakeWriter, layer};

/// Where lines go: gathered, but for those that somebody should see whatever comes next.
#[derive(Clone, Copy, Debug, Default)]
pub struct StandardError;

/// A writer for one line.
#[derive(Clone, Copy, Debug)]
pub enum LineWriter {
    /// Writes now.
    AtOnce(LogWriter),
    /// Writes with others of this turn of the shard.
    Gathered(LineGatherer),
}

impl StandardError {
    fn writer(level: Level) -> LineWriter {
        if level <= Level::WARN { LineWriter::AtOnce(LogWriter) } else { LineWriter::Gathered(LineGatherer) }
    }
}

impl std::io::Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::AtOnce(writer) => writer.write(line),
            Self::Gathered(writer) => writer.write(line),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::AtOnce(writer) => writer.flush(),
            Self::Gathered(writer) => writer.flush(),
        }
    }
}

impl<'a> MakeWriter<'a> for StandardError {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter::AtOnce(LogWriter)
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> LineWriter {
        Self::writer(*meta.level())
    }
}

/// Writes events as text. Spans are not shown; this program has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextLines;

impl<S: Subscriber> Layer<S> for TextLines {
    fn on_event(&self, event: &Event<'_>, _context: layer::Context<'_, S>) {
        // Taken out and put back: a value that says something itself while it is printed gets a buffer of its own.
        let mut line = LINE.take();
        line.clear();
        write_event(&mut line, event, clock::since_1970());
        let _never_fails = StandardError::writer(*event.metadata().level()).write(line.as_bytes());
        if line.capacity() <= KEPT_BYTES {
            LINE.set(line);
        }
    }
}

/// A longer line's buffer is not kept for the next.
const KEPT_BYTES: usize = 4096;

thread_local! {
    static LINE: RefCell<String> = const { RefCell::new(String::new()) };
    static SECOND: RefCell<Second> = const { RefCell::new(Second { number: u64::MAX, text: String::new() }) };
}

/// The last second in which this thread said something.
struct Second {
    /// Since 1970.
    number: u64,
    /// `2026-11-30T15:01:16.`
    text: String,
}

fn write_event(line: &mut String, event: &Event<'_>, now: Duration) {
    let meta = event.metadata();
    SECOND.with_borrow_mut(|second| {
        if second.number != now.as_secs() {
            second.set(now.as_secs());
        }
        line.push_str(&second.text);
    });
    let micros = now.subsec_micros();
    for place in [100_000, 10_000, 1000, 100, 10, 1] {
        line.push(digit(u64::from(micros / place)));
    }
    line.push_str(match *meta.level() {
        Level::ERROR => "Z ERROR ",
        Level::WARN => "Z  WARN ",
        Level::INFO => "Z  INFO ",
        Level::DEBUG => "Z DEBUG ",
        Level::TRACE => "Z TRACE ",
    });
    line.push_str(meta.target());
    line.push(':');
    event.record(&mut Fields { line });
    line.push('\n');
}

impl Second {
    fn set(&mut self, number: u64) {
        let date =
            i64::try_from(number).ok().and_then(|number| OffsetDateTime::from_unix_timestamp(number).ok());
        let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let (hour, minute, second) = (date.hour(), date.minute(), date.second());
        self.number = number;
        self.text.clear();
        let _infallible =
            write!(self.text, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.");
    }
}

/// Writes ` name=value`, and the message without its name.
struct Fields<'a> {
    line: &'a mut String,
}

impl Fields<'_> {
    fn name(&mut self, field: &Field) {
        self.line.push(' ');
        if field.name() != MESSAGE {
            let name = field.name();
            self.line.push_str(name.strip_prefix("r#").unwrap_or(name));
            self.line.push('=');
        }
    }
}

/// The field that `tracing` gives a line's text.
const MESSAGE: &str = "message";

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.name(field);
        let _infallible = if field.name() == MESSAGE {
            write!(Printable(self.line), "{value:?}")
        } else {
            write!(self.line, "{value:?}")
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.name(field);
        if field.name() == MESSAGE {
            let _infallible = Printable(self.line).write_str(value);
        } else if is_plain(value.as_bytes()) {
            self.line.push('"');
            self.line.push_str(value);
            self.line.push('"');
        } else {
            let _infallible = write!(self.line, "{value:?}");
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.name(field);
        decimal(self.line, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.name(field);
        if value < 0 {
            self.line.push('-');
        }
        decimal(self.line, value.unsigned_abs());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.name(field);
        self.line.push_str(if value { "true" } else { "false" });
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.name(field);
        let _infallible = write!(Printable(self.line), "{value}");
        let mut source = value.source();
        if source.is_none() {
            return;
        }
        self.line.push(' ');
        self.line.push_str(field.name());
        self.line.push_str(".sources=[");
        while let Some(error) = source {
            let _infallible = write!(Printable(self.line), "{error}");
            source = error.source();
            self.line.push_str(if source.is_some() { ", " } else { "]" });
        }
    }
}

/// Whether text in quotes stands for itself. Without a way out in its middle the loop takes many bytes at a time.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~') & !matches!(byte, b'"' | b'\\'))
}

/// Text with the control characters made visible by which it could steer a terminal.
struct Printable<'a>(&'a mut String);

impl fmt::Write for Printable<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            self.0.push_str(text);
            return Ok(());
        }
        for character in text.chars() {
            match character {
                '\x07' | '\x08' | '\x0c' | '\x1b' | '\x7f' => {
                    write!(self.0, "\\x{:02x}", u32::from(character))?
                }
                '\u{80}'..='\u{9f}' => write!(self.0, "\\u{{{:x}}}", u32::from(character))?,
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

fn decimal(line: &mut String, mut value: u64) {
    let mut place = 1;
    while value / place > 9 {
        place *= 10;
    }
    while place > 0 {
        line.push(digit(value / place));
        value %= place;
        place /= 10;
    }
}

/// The last decimal digit.
fn digit(value: u64) -> char {
    char::from(b'0' + u8::try_from(value % 10).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, mpsc},
    };

    use tracing_subscriber::{layer::SubscriberExt, registry};

    use super::*;

    /// A layer that sends our lines away instead of writing them.
    struct Ours(mpsc::Sender<String>);

    impl<S: Subscriber> Layer<S> for Ours {
        fn on_event(&self, event: &Event<'_>, _context: layer::Context<'_, S>) {
            let mut line = String::new();
            write_event(&mut line, event, Duration::new(1_796_050_876, 9_012_345));
            self.0.send(line).unwrap();
        }
    }

    #[derive(Clone)]
    struct Sent(mpsc::Sender<String>);

    impl io::Write for Sent {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.send(String::from_utf8(line.to_vec()).unwrap()).unwrap();
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("outer\x1b")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("inner\n{0}")]
    struct Inner(#[source] io::Error);

    fn say_everything() {
        let (id, none, some) = (Arc::<str>::from("req_1"), None::<&str>, Some("a \"b\" \\ \u{1b}[1m ü\n"));
        tracing::info!(id = &*id, none, some, r#type = "t", client = %"[::1]:80", "ended");
        tracing::error!(
            zero = 0_u64, most = u64::MAX, small = -5, least = i64::MIN, ten = 10_u16, hundred = 100_u8, yes = true, no = false,
            half = 0.5, big = u128::MAX, list = ?[1, 2], "numbers"
        );
        let error = Outer(Inner(io::Error::other("last")));
        tracing::warn!(error = &error as &dyn Error, shown = %error, "with sources");
        tracing::debug!(error = &io::Error::other("x\u{7f}\u{85}") as &dyn Error, "without");
        tracing::trace!("a {} \x1b[31m \u{9b} \t{}", "message", "\x07\x08\x0c");
        tracing::info!(only = "fields");
    }

    #[test]
    fn a_line_is_that_of_the_usual_formatter() {
        let ((ours, our_lines), (usual, usual_lines)) = (mpsc::channel(), mpsc::channel());
        let usual = tracing_subscriber::fmt::layer().with_ansi(false).with_writer({
            let usual = Sent(usual);
            move || usual.clone()
        });
        tracing::subscriber::with_default(registry().with(Ours(ours)).with(usual), say_everything);
        let since = "2026-11-30T15:01:16.009012Z".len();
        let cut = |line: String| line.get(since..).unwrap().to_owned();
        let (our_lines, usual_lines): (Vec<_>, Vec<_>) =
            (our_lines.iter().collect(), usual_lines.iter().map(cut).collect());
        assert_eq!(usual_lines.len(), 6);
        for line in &our_lines {
            assert!(line.starts_with("2026-11-30T15:01:16.009012Z"), "{line}");
        }
        assert_eq!(our_lines.into_iter().map(cut).collect::<Vec<_>>(), usual_lines);
    }

    #[test]
    fn what_warns_is_written_at_once() {
        let at_once = |level| matches!(StandardError::writer(level), LineWriter::AtOnce(_));
        assert!(at_once(Level::ERROR) && at_once(Level::WARN));
        assert!(!at_once(Level::INFO) && !at_once(Level::DEBUG) && !at_once(Level::TRACE));
    }
}
