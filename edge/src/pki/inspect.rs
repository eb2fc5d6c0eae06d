//! Showing what the certificates of a file say, and whether a peer would accept them.

use std::fmt::Write;

use dataplane::tls::{
    leaf::{LeafFault, PeerIdentity},
    pem::{self, PemError},
    refusal::Refusal,
};
use rustls_pki_types::CertificateDer;
use thiserror::Error;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use x509_parser::{certificate::X509Certificate, parse_x509_certificate};

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Why there is nothing to show.
#[derive(Debug, Error)]
pub enum InspectError {
    /// No certificate in the file.
    #[error("nothing to inspect")]
    Pem(#[source] PemError),
}

/// What was found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The text for people.
    pub text: String,
    /// How many leaf certificates a peer would refuse. CA certificates count when their time is not now.
    pub unfit: usize,
}

/// Describes every certificate in a PEM text or a join file, as of `now` in seconds since the epoch. Private keys in the
/// file are passed over.
///
/// # Errors
/// [`InspectError`].
pub fn inspect(text: &[u8], now: u64) -> Result<Report, InspectError> {
    let certificates = pem::certs(&outdent(text)).map_err(InspectError::Pem)?;
    let mut report = Report { text: String::new(), unfit: 0 };
    for (index, certificate) in certificates.iter().enumerate() {
        if index > 0 {
            report.text.push('\n');
        }
        describe(certificate, now, &mut report);
    }
    Ok(report)
}

/// In a join file the PEM texts are indented, which PEM does not know.
fn outdent(text: &[u8]) -> Vec<u8> {
    text.split(|byte| *byte == b'\n')
        .flat_map(|line| line.trim_ascii().iter().copied().chain([b'\n']))
        .collect()
}

fn describe(certificate: &CertificateDer<'_>, now: u64, report: &mut Report) {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else {
        report.unfit += 1;
        line(report, "problem", &format!("{} ({})", LeafFault::Encoding, Refusal::BadCertificate));
        return;
    };
    let problem =
        if parsed.is_ca() { describe_ca(&parsed, report) } else { describe_leaf(certificate, report) };
    line(report, "serial", &hex(parsed.raw_serial()));
    // Names of foreign CAs are foreign text: control characters are not sent to the terminal.
    line(report, "subject", &parsed.subject().to_string().escape_debug().to_string());
    line(report, "issuer", &parsed.issuer().to_string().escape_debug().to_string());
    let dates = describe_dates(&parsed, now, report);
    let problems = [problem, dates];
    for problem in problems.iter().flatten() {
        line(report, "problem", problem);
    }
    report.unfit += usize::from(problems.iter().any(Option::is_some));
}

fn describe_ca(parsed: &X509Certificate<'_>, report: &mut Report) -> Option<String> {
    let constraints = parsed.basic_constraints().ok().flatten();
    let path = constraints.and_then(|found| found.value.path_len_constraint);
    let below =
        path.map_or_else(|| "any number of CAs below it".to_owned(), |path| format!("path length {path}"));
    line(report, "kind", &format!("CA certificate, {below}"));
    None
}

fn describe_leaf(certificate: &CertificateDer<'_>, report: &mut Report) -> Option<String> {
    match PeerIdentity::from_leaf(certificate) {
        Ok(leaf) => {
            line(report, "identity", &leaf.workload.to_uri());
            line(report, "role", leaf.role().as_str());
            line(report, "name", leaf.name().as_str());
            None
        }
        Err(fault) => {
            line(report, "kind", "leaf certificate");
            let cause =
                std::error::Error::source(&fault).map(|cause| format!(": {cause}")).unwrap_or_default();
            Some(format!("{fault}{cause} ({})", fault.refusal()))
        }
    }
}

fn describe_dates(parsed: &X509Certificate<'_>, now: u64, report: &mut Report) -> Option<String> {
    let seconds = |timestamp: i64| u64::try_from(timestamp).unwrap_or(0);
    let from = seconds(parsed.validity().not_before.timestamp());
    let until = seconds(parsed.validity().not_after.timestamp());
    let left = until.saturating_sub(now) / DAY_SECONDS;
    line(report, "valid", &format!("{} to {} ({left} days left)", rfc3339(from), rfc3339(until)));
    if now < from {
        Some(format!("not valid yet ({})", Refusal::NotYetValid))
    } else if now > until {
        Some(format!("expired ({})", Refusal::Expired))
    } else {
        None
    }
}

/// A time in seconds since the epoch, for people.
#[must_use]
pub fn rfc3339(seconds: u64) -> String {
    let date =
        i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    date.and_then(|date| date.format(&Rfc3339).ok()).unwrap_or_else(|| format!("second {seconds}"))
}

fn line(report: &mut Report, key: &str, value: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(report.text, "{key:<9} {value}");
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().skip_while(|byte| **byte == 0);
    digits.fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
