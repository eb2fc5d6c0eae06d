//! Principal tokens: what clients present, and who they then are (CFG-2, PTK-2).
//!
//! ```text
//!  iop_ k7d2m9xq _ 43 characters of base64url _ 6 of base62
//!       key id     256 random bits              CRC-32 of all before
//! ```
//!
//! The prefix and the checksum let secret scanners find a leaked token without false alarms. The configuration holds the
//! SHA-256 of the whole token as it is sent, so any other opaque bearer string may be configured as well. A fast hash is
//! right here: 256 random bits cannot be guessed, and a slow one would let anybody load the Edge.
//!
//! Authentication yields a [`Principal`] or an error. There is no default principal, so no path can fall back to one.

use std::{collections::HashMap, fmt, sync::Arc};

use sha2::{Digest, Sha256};
use thiserror::Error;

/// Longest token that is looked at, in bytes; a longer one is refused before it is hashed.
pub const TOKEN_BYTES_MAX: usize = 512;

/// Who a caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Which token it used: the unit of usage breakdown.
    pub token_ref: Arc<str>,
    /// Who owns the token; several tokens may share one.
    pub principal_ref: Arc<str>,
    /// For people.
    pub alias: Option<Arc<str>>,
}

impl Principal {
    /// A principal of its parts.
    #[must_use]
    pub fn new(token_ref: &str, principal_ref: &str, alias: Option<&str>) -> Self {
        Self {
            token_ref: token_ref.into(),
            principal_ref: principal_ref.into(),
            alias: alias.map(Into::into),
        }
    }
}

/// One entry of `openai.principal_tokens`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalToken {
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// Whose it is.
    pub principal: Arc<Principal>,
}

/// A token of our own form. It has no `Display`, and its `Debug` shows the key id only.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Why a text is no token of our form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Not `iop_<8>_<43>_<6>` in the right alphabets.
    #[error("expected a token of the form iop_<key id>_<secret>_<checksum>")]
    Form,
    /// The form is right, a character is not.
    #[error("the checksum of the token does not match: a character was lost or changed")]
    Checksum,
}

/// The operating system gave no random bytes.
#[derive(Debug, Error)]
#[error("no random bytes from the operating system: {0}")]
pub struct RandomError(getrandom::Error);

const PREFIX: &str = "iop_";
const KEY_ID_CHARS: usize = 8;
const SECRET_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;
/// RFC 4648 section 6, lower case: nothing that a person confuses and no `_`.
const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// RFC 4648 section 5.
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl Token {
    /// The token of these random bytes.
    fn of(key_id: [u8; 5], secret: [u8; 32]) -> Self {
        let mut text = String::with_capacity(PREFIX.len() + KEY_ID_CHARS + SECRET_CHARS + CHECKSUM_CHARS + 2);
        text.push_str(PREFIX);
        encode(&key_id, 5, BASE32, &mut text);
        text.push('_');
        encode(&secret, 6, BASE64URL, &mut text);
        let checksum = checksum(text.as_bytes());
        text.push('_');
        text.push_str(&checksum);
        Self(text)
    }

    /// Checks form and checksum.
    ///
    /// # Errors
    /// [`TokenError`]
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let rest = text.strip_prefix(PREFIX).ok_or(TokenError::Form)?;
        let (key_id, rest) = field(rest, KEY_ID_CHARS, BASE32)?;
        let rest = rest.strip_prefix('_').ok_or(TokenError::Form)?;
        let (secret, rest) = field(rest, SECRET_CHARS, BASE64URL)?;
        let rest = rest.strip_prefix('_').ok_or(TokenError::Form)?;
        let (given, rest) = field(rest, CHECKSUM_CHARS, BASE62)?;
        if !rest.is_empty() {
            return Err(TokenError::Form);
        }
        let covered = format!("{PREFIX}{key_id}_{secret}");
        if checksum(covered.as_bytes()) == given {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError::Checksum)
        }
    }

    /// The token itself, to be shown once to its owner.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The public part that tells tokens apart in a list.
    #[must_use]
    pub fn key_id(&self) -> &str {
        self.0.get(PREFIX.len()..PREFIX.len() + KEY_ID_CHARS).unwrap_or_default()
    }

    /// What the configuration holds: the SHA-256 of the whole token.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        hash(&self.0)
    }

    /// The entry of `openai.principal_tokens` in YAML, one line, without the token.
    #[must_use]
    pub fn config_entry(&self, token_ref: &str, principal_ref: &str) -> String {
        config_entry(&self.0, token_ref, principal_ref)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({PREFIX}{}_…)", self.key_id())
    }
}

/// A new token of 256 random bits.
///
/// # Errors
/// [`RandomError`] when the operating system gives no random bytes.
pub fn generate() -> Result<Token, RandomError> {
    let mut key_id = [0u8; 5];
    let mut secret = [0u8; 32];
    getrandom::fill(&mut key_id).map_err(RandomError)?;
    getrandom::fill(&mut secret).map_err(RandomError)?;
    Ok(Token::of(key_id, secret))
}

/// The SHA-256 of any bearer string.
#[must_use]
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// The SHA-256 of any bearer string as `token_hash_sha256` holds it: 64 hexadecimal digits.
#[must_use]
pub fn hash_hex(token: &str) -> String {
    hex(&hash(token))
}

/// Whether a text can be a client's token: 1 to [`TOKEN_BYTES_MAX`] visible ASCII characters.
#[must_use]
pub fn is_possible(text: &str) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A `principal_ref` that the configuration will take.
///
/// # Errors
/// What is wrong with it.
pub fn reference(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() || text.trim() != text || text.contains(char::is_control) {
        Err("expected a name without control characters and without blanks at its ends")
    } else if text.len() > 128 {
        Err("expected at most 128 bytes")
    } else {
        Ok(text.to_owned())
    }
}

/// A `token_ref` that the configuration will take.
///
/// # Errors
/// What is wrong with it.
pub fn token_reference(text: &str) -> Result<String, &'static str> {
    if text.starts_with('#') {
        return Err(
            "expected a name that does not begin with #, which begins a comment in the list of revoked tokens",
        );
    }
    reference(text)
}

/// As [`Token::config_entry`], for any bearer string.
#[must_use]
pub fn config_entry(token: &str, token_ref: &str, principal_ref: &str) -> String {
    format!(
        "- {{ token_ref: {}, token_hash_sha256: \"{}\", principal_ref: {} }}",
        quoted(token_ref),
        hash_hex(token),
        quoted(principal_ref)
    )
}

/// Lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A double-quoted YAML scalar: JSON's is one, but `${` must stay what it is.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text.replace("${", "$${")).to_string()
}

/// Takes `chars` characters of `alphabet` off the front.
fn field<'a>(text: &'a str, chars: usize, alphabet: &[u8]) -> Result<(&'a str, &'a str), TokenError> {
    let (field, rest) = text.split_at_checked(chars).ok_or(TokenError::Form)?;
    if field.bytes().all(|byte| alphabet.contains(&byte)) { Ok((field, rest)) } else { Err(TokenError::Form) }
}

/// Writes the bits of `bytes` in groups of `bits` from the highest; the last group is filled up with zeros (RFC 4648
/// without padding). `alphabet` has at least 2^bits characters.
fn encode(bytes: &[u8], bits: u32, alphabet: &[u8], out: &mut String) {
    let mut held = 0u32;
    let mut held_bits = 0;
    let mut push = |group: u32| {
        let index = usize::try_from(group & ((1 << bits) - 1)).unwrap_or(0);
        out.extend(alphabet.get(index).copied().map(char::from));
    };
    for byte in bytes {
        held = (held << 8) | u32::from(*byte);
        held_bits += 8;
        while held_bits >= bits {
            held_bits -= bits;
            push(held >> held_bits);
        }
        held &= (1 << held_bits) - 1;
    }
    if held_bits > 0 {
        push(held << (bits - held_bits));
    }
}

/// CRC-32 (IEEE 802.3) in six digits of base 62, leading zeros kept.
fn checksum(bytes: &[u8]) -> String {
    let mut rest = crc32(bytes);
    let mut digits = [b'0'; CHECKSUM_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = usize::try_from(rest % 62).ok().and_then(|index| BASE62.get(index)).copied().unwrap_or(b'0');
        rest /= 62;
    }
    digits.iter().copied().map(char::from).collect()
}

fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL_REVERSED: u32 = 0xEDB8_8320;
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL_REVERSED } else { crc >> 1 }
        })
    })
}

/// Why a caller is not let in. All of them are one and the same answer to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum AuthError {
    /// Neither `authorization` nor `x-api-key`.
    #[error("no token was sent")]
    Missing,
    /// Not `Bearer` and one token of 1 to 512 visible ASCII characters.
    #[error("the token has not the form of a bearer token")]
    Malformed,
    /// Two fields that carry different tokens.
    #[error("two different tokens were sent")]
    Ambiguous,
    /// A well-formed token that nobody has.
    #[error("the token is not known")]
    Unknown,
}

impl AuthError {
    /// A word for logs and metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Ambiguous => "ambiguous",
            Self::Unknown => "unknown",
        }
    }
}

/// Who may call. Shared by all shards, never changed.
#[derive(Clone, Debug)]
pub struct Authenticator {
    /// By the SHA-256 of the token. A caller cannot choose digests, so the time of a lookup tells nothing of a token.
    by_hash: HashMap<[u8; 32], Arc<Principal>>,
}

impl Authenticator {
    /// The callers of a configuration.
    #[must_use]
    pub fn new(tokens: &[PrincipalToken]) -> Self {
        Self { by_hash: tokens.iter().map(|token| (token.hash, token.principal.clone())).collect() }
    }

    /// The principal of the token in `authorization` or `x-api-key`; other fields are skipped. `fields` are all header
    /// fields of the request, names in any case, values without blanks at their ends.
    ///
    /// # Errors
    /// [`AuthError`]; a request that carries a wrong token is refused whatever else it carries.
    pub fn authenticate<'a>(
        &self,
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Arc<Principal>, AuthError> {
        let mut found: Option<&[u8]> = None;
        for (name, value) in fields {
            let token = if name.eq_ignore_ascii_case(b"authorization") {
                bearer(value)?
            } else if name.eq_ignore_ascii_case(b"x-api-key") {
                checked(value)?
            } else {
                continue;
            };
            if found.is_some_and(|other| other != token) {
                return Err(AuthError::Ambiguous);
            }
            found = Some(token);
        }
        let token = found.ok_or(AuthError::Missing)?;
        let hash: [u8; 32] = Sha256::digest(token).into();
        self.by_hash.get(&hash).cloned().ok_or(AuthError::Unknown)
    }
}

/// The token of `Bearer <token>`: the scheme in any case, one space (RFC 6750 section 2.1).
fn bearer(value: &[u8]) -> Result<&[u8], AuthError> {
    const SCHEME: &[u8] = b"bearer ";
    match value.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => checked(token),
        _ => Err(AuthError::Malformed),
    }
}

fn checked(token: &[u8]) -> Result<&[u8], AuthError> {
    // Without a way out in its middle the loop takes many bytes at a time.
    let valid = (1..=TOKEN_BYTES_MAX).contains(&token.len())
        && token.iter().fold(true, |good, byte| good & byte.is_ascii_graphic());
    if valid { Ok(token) } else { Err(AuthError::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticator() -> Authenticator {
        let token = |text: &str, name: &str| PrincipalToken {
            hash: hash(text),
            principal: Arc::new(Principal::new(name, "alice", None)),
        };
        Authenticator::new(&[token("sk-one", "one"), token("sk-two", "two"), token(&"x".repeat(512), "long")])
    }

    fn ask(fields: &[(&str, &str)]) -> Result<Arc<str>, AuthError> {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        authenticator().authenticate(fields).map(|principal| principal.token_ref.clone())
    }

    #[test]
    fn names_are_judged_as_the_loader_does() {
        for (text, token_ref, principal_ref) in [
            ("laptop", true, true),
            ("a b", true, true),
            ("#1", false, true),
            ("", false, false),
            (" a", false, false),
            ("a\nb", false, false),
            (&*"a".repeat(128), true, true),
            (&*"a".repeat(129), false, false),
        ] {
            assert_eq!(token_reference(text).is_ok(), token_ref, "{text:?}");
            assert_eq!(reference(text).is_ok(), principal_ref, "{text:?}");
        }
    }

    #[test]
    fn what_no_header_can_carry_is_no_token() {
        assert!(is_possible("sk-1") && is_possible(&"x".repeat(512)));
        for text in ["", "two words", "é", &"x".repeat(513)] {
            assert!(!is_possible(text), "{text:?}");
        }
    }

    #[test]
    fn encodings_agree_with_published_vectors() {
        let encoded = |bytes: &[u8], bits, alphabet: &[u8]| {
            let mut out = String::new();
            encode(bytes, bits, alphabet, &mut out);
            out
        };
        // RFC 4648 section 10.
        assert_eq!(encoded(b"foobar", 6, BASE64URL), "Zm9vYmFy");
        assert_eq!(encoded(b"foob", 6, BASE64URL), "Zm9vYg");
        assert_eq!(encoded(b"fooba", 5, BASE32), "mzxw6ytb");
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(checksum(b""), "000000");
        // FIPS 180-4.
        assert!(hex(&hash("abc")).starts_with("ba7816bf8f01cfea"));
    }

    // req: PTK-2
    #[test]
    fn a_new_token_has_256_random_bits_a_prefix_and_a_checksum() {
        let token = generate().unwrap();
        let other = generate().unwrap();
        assert_ne!(token.secret(), other.secret());
        assert_eq!(token.secret().len(), 63);
        assert!(token.secret().starts_with("iop_"));
        assert_eq!(Token::parse(token.secret()), Ok(token.clone()));
        // 43 characters of 6 bits, the last of which carries 4: 256 bits, all of which change the token.
        let zero = Token::of([0; 5], [0; 32]);
        for bit in 0..256 {
            let mut secret = [0u8; 32];
            secret[bit / 8] = 1 << (bit % 8);
            assert_ne!(Token::of([0; 5], secret), zero, "bit {bit}");
        }
        assert!(!format!("{token:?}").contains(&token.secret()[13..56]));
    }

    #[test]
    fn a_token_with_a_changed_character_is_recognized() {
        let token = Token::of([7; 5], [9; 32]);
        let text = token.secret();
        for at in 0..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[at] = if changed[at] == b'a' { b'b' } else { b'a' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(Token::parse(&changed).is_err(), "{at}");
        }
        for wrong in ["", "iop_", &text[..text.len() - 1], &format!("{text}a"), "iop_ä234567_", "sk-one"] {
            assert_eq!(Token::parse(wrong), Err(TokenError::Form), "{wrong}");
        }
    }

    // req: PTK-2
    #[test]
    fn the_printed_config_entry_loads_and_lets_its_token_in() {
        let token = generate().unwrap();
        let entry = token.config_entry("laptop \"x\" ${HOME}", "alice");
        assert!(!entry.contains(&token.secret()[13..56]), "the secret itself stands in the entry");
        let text = format!("openai:\n  provider_id: local\n  principal_tokens:\n    {entry}\n");
        let settings = crate::config::load_text(&text, "edge.yaml".as_ref(), &|_| None).unwrap();
        let authenticator = Authenticator::new(&settings.principals);
        let value = format!("Bearer {}", token.secret());
        let principal =
            authenticator.authenticate([(b"authorization".as_slice(), value.as_bytes())]).unwrap();
        assert_eq!(principal.token_ref.as_ref(), "laptop \"x\" ${HOME}");
        assert_eq!(principal.principal_ref.as_ref(), "alice");
    }

    #[test]
    fn a_known_token_is_let_in_by_either_header() {
        for fields in [
            &[("authorization", "Bearer sk-one")][..],
            &[("Authorization", "bearer sk-one")],
            &[("AUTHORIZATION", "BEARER sk-one")],
            &[("host", "h"), ("X-Api-Key", "sk-one")],
            &[("x-api-key", "sk-one"), ("authorization", "Bearer sk-one")],
        ] {
            assert_eq!(ask(fields).as_deref(), Ok("one"), "{fields:?}");
        }
        let long = format!("Bearer {}", "x".repeat(512));
        assert_eq!(ask(&[("authorization", &long)]).as_deref(), Ok("long"));
    }

    #[test]
    fn anything_but_one_exact_token_is_refused() {
        let too_long = format!("Bearer {}", "x".repeat(513));
        for (fields, error) in [
            (&[][..], AuthError::Missing),
            (&[("host", "h")], AuthError::Missing),
            (&[("authorization", "")], AuthError::Malformed),
            (&[("authorization", "Bearer")], AuthError::Malformed),
            (&[("authorization", "Bearer ")], AuthError::Malformed),
            (&[("authorization", "Bearer  sk-one")], AuthError::Malformed),
            (&[("authorization", "Bearer\tsk-one")], AuthError::Malformed),
            (&[("authorization", "Bearer sk-one sk-two")], AuthError::Malformed),
            (&[("authorization", "Bearer sk-ön")], AuthError::Malformed),
            (&[("authorization", "Basic sk-one")], AuthError::Malformed),
            (&[("authorization", "sk-one")], AuthError::Malformed),
            (&[("authorization", &too_long)], AuthError::Malformed),
            (&[("x-api-key", "")], AuthError::Malformed),
            (&[("authorization", "Bearer SK-ONE")], AuthError::Unknown),
            (&[("authorization", "Bearer sk-on")], AuthError::Unknown),
            (&[("authorization", "Bearer nobody"), ("x-api-key", "sk-one")], AuthError::Ambiguous),
            (&[("authorization", "Bearer sk-one"), ("authorization", "Bearer sk-two")], AuthError::Ambiguous),
            (&[("authorization", "Basic x"), ("x-api-key", "sk-one")], AuthError::Malformed),
        ] {
            assert_eq!(ask(fields), Err(error), "{fields:?}");
        }
    }
}
