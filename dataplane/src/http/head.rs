//! Heads of messages: method, target, status and fields.
//!
//! The fields of a parsed head are ranges of the one buffer it came in, so that a head costs two allocations at most.

use std::{fmt, ops::Range, str};

use bytes::{Bytes, BytesMut};

/// A request method. It is case-sensitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET
    Get,
    /// POST
    Post,
    /// HEAD
    Head,
    /// OPTIONS
    Options,
    /// Any other token.
    Other(Box<str>),
}

impl Method {
    /// From its token.
    pub fn from_token(token: &str) -> Self {
        match token {
            "GET" => Self::Get,
            "POST" => Self::Post,
            "HEAD" => Self::Head,
            "OPTIONS" => Self::Options,
            other => Self::Other(other.into()),
        }
    }

    /// Its token.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Other(token) => token,
        }
    }
}

/// The version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// A request target in origin form (`/path?query`), or `*`. Printable ASCII without `#`; not decoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    raw: Bytes,
    path: usize,
}

impl Target {
    /// `raw` must be ASCII.
    pub(super) fn new(raw: Bytes) -> Self {
        let path = memchr::memchr(b'?', &raw).unwrap_or(raw.len());
        Self { raw, path }
    }

    /// The whole target as it was sent.
    pub fn as_str(&self) -> &str {
        text(&self.raw)
    }

    /// What stands before the first `?`.
    pub fn path(&self) -> &str {
        text(self.raw.get(..self.path).unwrap_or_default())
    }

    /// What stands after the first `?`; `None` when there is none.
    pub fn query(&self) -> Option<&str> {
        self.raw.get(self.path + 1..).map(text)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may carry secrets.
        write!(f, "Target({:?})", self.path())
    }
}

/// A request without its body.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// Method.
    pub method: Method,
    /// Target.
    pub target: Target,
    /// Version.
    pub version: Version,
    /// Fields.
    pub headers: Headers,
}

impl RequestHead {
    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1; never on 1.0).
    pub fn expects_continue(&self) -> bool {
        self.version == Version::Http11 && self.headers.get("expect").is_some()
    }
}

/// A response without its body.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// Status, 100 to 599.
    pub status: u16,
    /// Version that the peer spoke; what we send is always 1.1.
    pub version: Version,
    /// Fields.
    pub headers: Headers,
}

impl ResponseHead {
    /// A head of ours with no fields.
    pub fn new(status: u16) -> Self {
        Self { status, version: Version::Http11, headers: Headers::new() }
    }

    /// Whether another head follows this one (1xx).
    pub fn is_informational(&self) -> bool {
        (100..200).contains(&self.status)
    }
}

/// Why a field was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    /// The name is empty or has a byte that is not a lower-case token character.
    #[error("not a lower-case field name")]
    Name,
    /// The value has a control character.
    #[error("a control character in a field value")]
    Value,
}

/// A field that may come once came more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a field came more than once")]
pub struct Repeated;

#[derive(Clone, Copy)]
struct Field {
    /// Whether the ranges are in `own` instead of `shared`.
    own: bool,
    name: (u32, u32),
    value: (u32, u32),
}

/// The fields of a message in order: lower-case names, values without control characters (a tab may be inside), by
/// construction.
#[derive(Clone, Default)]
pub struct Headers {
    shared: Bytes,
    own: Vec<u8>,
    fields: Vec<Field>,
}

impl Headers {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for `fields` fields in a buffer that will be adopted.
    pub(super) fn with_capacity(fields: usize) -> Self {
        Self::with_room(fields, 0)
    }

    /// Room for `fields` fields whose names and values have `bytes` bytes together. More than that is only slower.
    pub fn with_room(fields: usize, bytes: usize) -> Self {
        Self { shared: Bytes::new(), own: Vec::with_capacity(bytes), fields: Vec::with_capacity(fields) }
    }

    /// Adds a field that lies in the buffer that [`Headers::adopt`] is going to take; the caller has checked its grammar.
    pub(super) fn push_range(&mut self, name: Range<usize>, value: Range<usize>) {
        self.fields.push(Field { own: false, name: narrow(&name), value: narrow(&value) });
    }

    /// Takes the buffer in which the pushed ranges lie and makes their names lower-case.
    pub(super) fn adopt(&mut self, mut buffer: BytesMut) {
        for field in &self.fields {
            if let Some(name) = buffer.get_mut(field.name.0 as usize..field.name.1 as usize) {
                name.make_ascii_lowercase();
            }
        }
        self.shared = buffer.freeze();
    }

    /// A part of the adopted buffer; empty when it does not lie in it.
    pub(super) fn slice_shared(&self, range: Range<usize>) -> Bytes {
        if range.start <= range.end && range.end <= self.shared.len() {
            self.shared.slice(range)
        } else {
            Bytes::new()
        }
    }

    fn bytes_of(&self, field: &Field, range: (u32, u32)) -> &[u8] {
        let from: &[u8] = if field.own { &self.own } else { &self.shared };
        from.get(range.0 as usize..range.1 as usize).unwrap_or_default()
    }

    /// Adds a field at the end.
    ///
    /// # Errors
    /// The name is not a lower-case token, or the value has a control character other than a tab.
    pub fn push(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), FieldFault> {
        let value = value.as_ref();
        if !is_field_name(name.as_bytes()) {
            return Err(FieldFault::Name);
        }
        if !is_field_value(value) {
            return Err(FieldFault::Value);
        }
        let start = self.own.len();
        self.own.extend_from_slice(name.as_bytes());
        let middle = self.own.len();
        self.own.extend_from_slice(value);
        let end = self.own.len();
        self.fields.push(Field { own: true, name: narrow(&(start..middle)), value: narrow(&(middle..end)) });
        Ok(())
    }

    /// The first value of `name` (lower-case).
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// The first value of `name` as text; `None` also when it is not UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// All values of `name` (lower-case), in order.
    pub fn get_all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.fields
            .iter()
            .filter(move |field| self.bytes_of(field, field.name) == name.as_bytes())
            .map(|field| self.bytes_of(field, field.value))
    }

    /// The only value of `name` (lower-case).
    ///
    /// # Errors
    /// It came more than once.
    pub fn get_unique(&self, name: &str) -> Result<Option<&[u8]>, Repeated> {
        let mut all = self.get_all(name);
        let first = all.next();
        if all.next().is_some() { Err(Repeated) } else { Ok(first) }
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.raw().map(|(name, value)| (text(name), value))
    }

    /// As [`Headers::iter`], with names as bytes: for who only compares or copies them.
    pub fn raw(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.fields.iter().map(|field| (self.bytes_of(field, field.name), self.bytes_of(field, field.value)))
    }

    /// The fields whose names are `wanted`, in order.
    pub(super) fn filtered(&self, wanted: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = (&str, &[u8])> {
        self.raw().filter(move |(name, _)| wanted(name)).map(|(name, value)| (text(name), value))
    }

    /// Takes every field of this name out.
    pub fn remove(&mut self, name: &str) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.retain(|field| self.bytes_of(field, field.name) != name.as_bytes());
        self.fields = fields;
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names only: values carry credentials.
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

fn narrow(range: &Range<usize>) -> (u32, u32) {
    let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    (narrow(range.start), narrow(range.end))
}

fn text(bytes: &[u8]) -> &str {
    // Names and targets are ASCII by construction; an empty text is the answer that cannot do harm.
    str::from_utf8(bytes).unwrap_or_default()
}

/// Whether `name` is a token without upper-case letters (RFC 9110 §5.6.2).
pub(super) fn is_field_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().fold(true, |good, b| good & LOWER_TOKEN[usize::from(*b)])
}

/// Whether `value` has no control character except tabs (RFC 9110 §5.5).
pub(super) fn is_field_value(value: &[u8]) -> bool {
    // Without a way out in its middle the loop takes many bytes at a time.
    value.iter().fold(true, |good, b| good & ((*b == b'\t') | ((*b >= 0x20) & (*b != 0x7f))))
}

/// Whether `byte` may stand in a token.
pub(super) fn is_token_byte(byte: u8) -> bool {
    LOWER_TOKEN[usize::from(byte)] || byte.is_ascii_uppercase()
}

/// Whether a byte may stand in a lower-case token, looked up: a name is checked whenever it is put into a head.
static LOWER_TOKEN: [bool; 256] = {
    let others = b"!#$%&'*+-.^_`|~";
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 0x80 {
        table[byte as usize] = byte.is_ascii_lowercase() || byte.is_ascii_digit();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// `value` without spaces and tabs around it.
pub(super) fn trim_ows(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The elements of a comma list, trimmed, without the empty ones (RFC 9110 §5.6.1).
pub(super) fn list_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|b| *b == b',').map(trim_ows).filter(|element| !element.is_empty())
}
