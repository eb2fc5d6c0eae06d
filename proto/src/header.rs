//! Header fields as the wire takes them (RFC 9110 section 5).

use alloc::string::String;

use bytes::Bytes;
use thiserror::Error;

use crate::message::Header;

/// Why a name or a value is no header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The name is empty or holds a byte that is no token character, or an upper-case letter.
    #[error("a header name is not a lower-case token")]
    Name,
    /// The value holds CR, LF or NUL.
    #[error("a header value holds cr, lf or nul")]
    Value,
}

impl Header {
    /// A checked header field. The name is folded to lower case first.
    ///
    /// # Errors
    /// [`HeaderError`] when the name is no token (RFC 9110 section 5.6.2) or the value holds CR, LF or NUL (section 5.5).
    pub fn new(name: impl Into<String>, value: impl Into<Bytes>) -> Result<Self, HeaderError> {
        let mut name = name.into();
        name.make_ascii_lowercase();
        let header = Self { name, value: value.into() };
        header.check()?;
        Ok(header)
    }

    /// Whether the two fields hold what their documentation says.
    ///
    /// # Errors
    /// [`HeaderError`] when not.
    pub fn check(&self) -> Result<(), HeaderError> {
        if self.name.is_empty() || !self.name.bytes().all(|byte| LOWER_TOKEN[usize::from(byte)]) {
            return Err(HeaderError::Name);
        }
        // Without a way out in its middle the loop takes many bytes at a time.
        if self.value.iter().fold(false, |found, byte| found | matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(HeaderError::Value);
        }
        Ok(())
    }
}

/// Every byte's answer, looked up: names are checked on each way through the product.
static LOWER_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x80 {
        table[byte as usize] = is_lower_token_byte(byte);
        byte += 1;
    }
    table
};

/// `tchar` of RFC 9110 section 5.6.2 without upper case.
const fn is_lower_token_byte(byte: u8) -> bool {
    matches!(byte,
        b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_'
        | b'`' | b'|' | b'~')
}
