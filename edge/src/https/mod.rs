//! HTTPS for clients: the files of the certificate, what is told about them, and the handshake of each connection.
//!
//! ```text
//!  files ──watch thread──► ServerConfig ──► every shard: its handshakes from then on
//! ```
//!
//! A connection keeps what it was greeted with; a renewed certificate is for new ones (IDN-4). Files that cannot be used change
//! nothing.

pub mod door;
pub mod watch;

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use dataplane::{
    http::date,
    tls::{
        config::ConfigError,
        pem::{self, PemError},
        server::{ServerCertificate, ServerCertificateError, https_server_config},
    },
};
use rustls::ServerConfig;

use crate::config::{LoadError, TlsFiles};

/// Days before the end of a certificate in which its end is told.
const SOON_DAYS: u64 = 7;
const DAY: u64 = 24 * 3600;
/// Everybody on the machine may read the file.
const READ_BY_OTHERS: u32 = 0o004;

/// A certificate that was loaded, and the configuration that presents it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The certificate.
    pub certificate: ServerCertificate,
    /// For the handshakes of new connections.
    pub config: Arc<ServerConfig>,
}

/// What the files hold now.
///
/// # Errors
/// They cannot be used; the place is that of the file that has to be looked at.
pub fn load(files: &TlsFiles) -> Result<Loaded, LoadError> {
    let (chain, key) = (read(files, File::Certificate)?, read(files, File::Key)?);
    let certificate = ServerCertificate::load(&chain, &key).map_err(|error| {
        let file = if error.is_of_the_key() { File::Key } else { File::Certificate };
        wrong(files, file, explain(&error))
    })?;
    let config = https_server_config(&certificate, files.min_version)
        .map_err(|error: ConfigError| wrong(files, File::Certificate, with_causes(&error)))?;
    Ok(Loaded { certificate, config })
}

/// What is right but surely not meant, at `now` in seconds since 1970.
#[must_use]
pub fn warnings(files: &TlsFiles, certificate: &ServerCertificate, now: u64) -> Vec<LoadError> {
    let mut all = Vec::new();
    let day = |moment: u64| String::from_utf8_lossy(&date::format(moment)).into_owned();
    let (begins, ends) = (certificate.not_before(), certificate.not_after());
    if ends <= now {
        let message = format!("the certificate has expired on {}: clients refuse it, so renew it", day(ends));
        all.push(wrong(files, File::Certificate, message));
    } else if ends - now < SOON_DAYS * DAY {
        let message = format!(
            "the certificate expires on {}: renew it, a running Edge takes up the new files",
            day(ends)
        );
        all.push(wrong(files, File::Certificate, message));
    }
    if begins > now {
        let message = format!(
            "the certificate is not valid before {}: clients refuse it until then, if this machine's clock is right",
            day(begins)
        );
        all.push(wrong(files, File::Certificate, message));
    }
    if certificate.names().is_empty() {
        let message = "the certificate names no host (subjectAltName), so no client of today accepts it: issue it for the names that clients write in their base URL";
        all.push(wrong(files, File::Certificate, message.to_owned()));
    }
    let open_to_all = |found: fs::Metadata| found.permissions().mode() & READ_BY_OTHERS != 0;
    if fs::metadata(&files.key.0).is_ok_and(open_to_all) {
        let path = files.key.0.display();
        let message = format!("everybody on this machine can read {path}: chmod o= it");
        all.push(wrong(files, File::Key, message));
    }
    all
}

/// Which of the two.
#[derive(Clone, Copy)]
enum File {
    Certificate,
    Key,
}

fn read(files: &TlsFiles, file: File) -> Result<Vec<u8>, LoadError> {
    let path = path(files, file);
    pem::read(path).map_err(|error| {
        let message = match &error {
            PemError::Read(error) => cannot_read(path, error),
            other => format!("{}: {}", path.display(), with_causes(other)),
        };
        wrong(files, file, message)
    })
}

fn cannot_read(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("{path} is not there; relative names start at the directory of the configuration file")
        }
        io::ErrorKind::PermissionDenied => {
            format!("the user of this process may not read {path}, or not enter a directory on the way to it")
        }
        _ => format!("cannot read {path}: {error}"),
    }
}

fn path(files: &TlsFiles, file: File) -> &Path {
    match file {
        File::Certificate => &files.cert.0,
        File::Key => &files.key.0,
    }
}

fn wrong(files: &TlsFiles, file: File, message: String) -> LoadError {
    let (at, key) = match file {
        File::Certificate => (files.cert.1, "listen.tls.cert_file"),
        File::Key => (files.key.1, "listen.tls.key_file"),
    };
    LoadError { at, path: key.to_owned(), message }
}

fn explain(error: &ServerCertificateError) -> String {
    with_causes(error)
}

/// The whole chain, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use dataplane::tls::server::MinVersion;
    use rcgen::{CertificateParams, KeyPair};
    use time::OffsetDateTime;

    use super::*;
    use crate::config::Place;

    /// The middle of a certificate's life.
    const NOW: u64 = 2_000_000_000;

    fn files(directory: &tempfile::TempDir) -> TlsFiles {
        let at = |column| Place { line: 3, column };
        let file = |name: &str| directory.path().join(name);
        TlsFiles {
            cert: (file("cert.pem"), at(10)),
            key: (file("key.pem"), at(20)),
            min_version: MinVersion::Tls12,
        }
    }

    /// Writes a certificate that lives a year around [`NOW`], and its key with this mode.
    fn write(files: &TlsFiles, names: &[&str], mode: u32) {
        let moment =
            |seconds: u64| OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap()).unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) = (moment(NOW - 180 * DAY), moment(NOW + 180 * DAY));
        let key = KeyPair::generate().unwrap();
        fs::write(&files.cert.0, params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(&files.key.0, key.serialize_pem()).unwrap();
        fs::set_permissions(&files.key.0, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_is_surely_not_meant_is_told_with_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&directory);
        let told = |now: u64| {
            let certificate = load(&files).unwrap().certificate;
            warnings(&files, &certificate, now).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        write(&files, &["box.test"], 0o640);
        assert_eq!(told(NOW), [""; 0]);
        for (now, words) in [
            (NOW + 181 * DAY, "has expired on "),
            (NOW + 176 * DAY, "expires on "),
            (NOW - 181 * DAY, "is not valid before "),
        ] {
            let told = told(now);
            let [one] = &told[..] else { panic!("{told:?}") };
            assert!(one.starts_with("3:10: listen.tls.cert_file: ") && one.contains(words), "{one}");
        }
        write(&files, &[], 0o644);
        let told = told(NOW);
        let [no_name, open] = &told[..] else { panic!("{told:?}") };
        assert!(no_name.contains("names no host (subjectAltName)"), "{no_name}");
        assert!(open.starts_with("3:20: listen.tls.key_file: ") && open.contains("chmod o="), "{open}");
    }

    #[test]
    fn files_that_cannot_be_used_are_told_with_the_place_of_the_one_to_look_at() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&directory);
        let told = || load(&files).unwrap_err().to_string();
        assert!(
            told().starts_with("3:10: listen.tls.cert_file: ") && told().contains("cert.pem is not there")
        );
        write(&files, &["box.test"], 0o600);
        let (cert, key) = (fs::read(&files.cert.0).unwrap(), fs::read(&files.key.0).unwrap());
        fs::write(&files.key.0, &cert).unwrap();
        assert!(
            told().starts_with("3:20: listen.tls.key_file: ") && told().contains("it holds a certificate")
        );
        fs::write(&files.cert.0, &key).unwrap();
        assert!(
            told().starts_with("3:10: listen.tls.cert_file: ") && told().contains("it holds a private key")
        );
        write(&files, &["box.test"], 0o600);
        fs::write(&files.key.0, key).unwrap();
        assert!(told().starts_with("3:20: listen.tls.key_file: ") && told().contains("does not belong"));
    }
}
