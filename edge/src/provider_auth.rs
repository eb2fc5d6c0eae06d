//! The client's own credential for a provider, taken from one header and sent in another (CFG-3).
//!
//! The Edge's own credential never goes that way: the two stand in headers of different names, which the loader sees to.

use std::sync::Arc;

use bytes::Bytes;
use dataplane::http::head::Headers;
use proto::message::Header;

use crate::{config::settings::ProviderAuth, reply::Fault};

/// Longest credential, in bytes.
const CREDENTIAL_BYTES_MAX: usize = 4096;

impl ProviderAuth {
    /// The field for the provider; `None` when it is disabled, or the client sent none and need not.
    ///
    /// # Errors
    /// It is required and missing, there twice, or no credential.
    pub fn take(&self, headers: &Headers) -> Result<Option<Header>, Fault> {
        if !self.enabled {
            return Ok(None);
        }
        let mut values = headers.get_all(&self.from_header);
        let value = match (values.next(), values.next()) {
            (None, _) if self.required => {
                return Err(Fault::ProviderAuth {
                    header: Arc::clone(&self.from_header),
                    found: "is missing",
                });
            }
            (None, _) => return Ok(None),
            (Some(value), None) => value,
            (Some(_), Some(_)) => {
                return Err(Fault::ProviderAuth {
                    header: self.from_header.clone(),
                    found: "is there twice",
                });
            }
        };
        let credential = self.without_scheme(value.trim_ascii());
        if !is_credential(credential) {
            let found = "is not one word of visible characters";
            return Err(Fault::ProviderAuth { header: Arc::clone(&self.from_header), found });
        }
        let mut sent = Vec::with_capacity(self.scheme.len() + 1 + credential.len());
        if !self.scheme.is_empty() {
            sent.extend_from_slice(self.scheme.as_bytes());
            sent.push(b' ');
        }
        sent.extend_from_slice(credential);
        Ok(Some(Header { name: self.target_header.to_string(), value: Bytes::from(sent) }))
    }

    /// A client may send the scheme as well, in any case.
    fn without_scheme<'a>(&self, value: &'a [u8]) -> &'a [u8] {
        match value.split_at_checked(self.scheme.len()) {
            Some((scheme, rest))
                if !self.scheme.is_empty()
                    && scheme.eq_ignore_ascii_case(self.scheme.as_bytes())
                    && (rest.is_empty() || rest.starts_with(b" ")) =>
            {
                rest.trim_ascii_start()
            }
            _ => value,
        }
    }
}

fn is_credential(value: &[u8]) -> bool {
    !value.is_empty() && value.len() <= CREDENTIAL_BYTES_MAX && value.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auth(scheme: &str, required: bool) -> ProviderAuth {
        ProviderAuth {
            enabled: true,
            from_header: "x-iop-provider-authorization".into(),
            target_header: "authorization".into(),
            scheme: scheme.into(),
            required,
        }
    }

    fn take(auth: &ProviderAuth, values: &[&str]) -> Result<Option<String>, &'static str> {
        let mut headers = Headers::new();
        headers.push("authorization", "Bearer of-the-edge").unwrap();
        for value in values {
            headers.push(&auth.from_header, value).unwrap();
        }
        match auth.take(&headers) {
            Ok(field) => Ok(field.map(|field| {
                assert_eq!(field.name, "authorization");
                String::from_utf8(field.value.to_vec()).unwrap()
            })),
            Err(Fault::ProviderAuth { found, .. }) => Err(found),
            Err(other) => panic!("{other:?}"),
        }
    }

    // req: CFG-3
    #[test]
    fn the_credential_is_taken_from_its_header_alone() {
        let bearer = auth("Bearer", true);
        let sent = |value: &str| take(&bearer, &[value]);
        for value in ["sk-1", "Bearer sk-1", "bearer  sk-1"] {
            assert_eq!(sent(value), Ok(Some("Bearer sk-1".to_owned())), "{value}");
        }
        assert_eq!(sent("bearersk"), Ok(Some("Bearer bearersk".to_owned())));
        for value in ["", "Bearer", "Bearer ", "two words", "k\u{e9}y", &"k".repeat(5000)] {
            assert_eq!(sent(value), Err("is not one word of visible characters"), "{value}");
        }
        assert_eq!(take(&bearer, &[]), Err("is missing"));
        assert_eq!(take(&bearer, &["a", "a"]), Err("is there twice"));
        assert_eq!(take(&auth("Bearer", false), &[]), Ok(None));
        assert_eq!(take(&auth("", true), &["Bearer"]), Ok(Some("Bearer".to_owned())));
        let off = ProviderAuth { enabled: false, ..auth("Bearer", true) };
        assert_eq!((take(&off, &[]), take(&off, &["sk-1"])), (Ok(None), Ok(None)));
    }
}
