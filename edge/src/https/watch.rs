//! The thread that watches the certificate's files (IDN-4).
//!
//! As with the list of revoked tokens it looks instead of being told: a notification is lost when a file is replaced through a link, a
//! mount or a rename, and a lost one would leave an expired certificate in force.

use std::{path::Path, sync::Arc, thread, time::Duration};

use dataplane::{clock, mailbox::Sender};
use rustls::ServerConfig;

use super::{Loaded, load, warnings};
use crate::{config::TlsFiles, mail::ToShard, marks::Marks, metrics::Metrics};

/// How often the files are looked at.
const PAUSE: Duration = Duration::from_millis(250);
/// Looks in a row that find the same fault before it is told: of two files one is replaced before the other.
const FAULTY_LOOKS: u32 = 8;

/// The watch.
#[derive(Debug)]
pub struct Watch {
    files: TlsFiles,
    /// What is presented.
    served: Loaded,
    /// The files that were read last.
    seen: Option<(Marks, Marks)>,
    /// What is wrong with the files, and in how many looks it was.
    fault: Option<(String, u32)>,
    shards: Vec<Sender<ToShard>>,
    /// What each shard has yet to be told.
    untold: Vec<Option<Arc<ServerConfig>>>,
    metrics: Arc<Metrics>,
}

impl Watch {
    /// A watch over `files` that goes on from what the shards present already.
    #[must_use]
    pub fn new(files: TlsFiles, served: Loaded, shards: Vec<Sender<ToShard>>, metrics: Arc<Metrics>) -> Self {
        let untold = shards.iter().map(|_| None).collect();
        metrics.client_certificate(served.certificate.not_after(), true);
        Self { files, served, seen: None, fault: None, shards, untold, metrics }
    }

    /// Watches for as long as the process lives.
    pub fn run(mut self) {
        loop {
            self.look();
            self.tell();
            thread::park_timeout(PAUSE);
        }
    }

    fn look(&mut self) {
        let marks = |path: &Path| Marks::of(path).ok();
        let marks = marks(&self.files.cert.0).zip(marks(&self.files.key.0));
        if marks.is_some() && self.seen == marks {
            return;
        }
        self.seen = None;
        match load(&self.files) {
            Ok(loaded) => {
                let now = clock::unix_seconds();
                self.seen = marks.filter(|(cert, key)| cert.are_settled(now) && key.are_settled(now));
                self.take(loaded, now);
            }
            Err(error) => self.found_faulty(error.to_string()),
        }
    }

    fn take(&mut self, loaded: Loaded, now: u64) {
        let told = self.fault.take().is_some_and(|(_, looks)| looks >= FAULTY_LOOKS);
        let not_after = loaded.certificate.not_after();
        if loaded.certificate.is_same(&self.served.certificate) {
            if told {
                tracing::info!(
                    "the certificate for clients can be read again: it is the one that is presented"
                );
                self.metrics.client_certificate(not_after, true);
            }
            return;
        }
        let names = loaded.certificate.names().join(", ");
        tracing::info!(%names, not_after, "a renewed certificate for clients: new connections get it");
        for warning in warnings(&self.files, &loaded.certificate, now) {
            tracing::warn!(%warning, "the renewed certificate for clients");
        }
        self.untold.iter_mut().for_each(|untold| *untold = Some(Arc::clone(&loaded.config)));
        self.metrics.client_certificate(not_after, true);
        self.metrics.client_certificate_reloads.with_label_values(&["ok"]).inc();
        self.served = loaded;
    }

    fn found_faulty(&mut self, error: String) {
        let looks = match &mut self.fault {
            Some((known, looks)) if *known == error => {
                *looks = looks.saturating_add(1);
                *looks
            }
            fault => fault.insert((error, 1)).1,
        };
        let Some((error, _)) = self.fault.as_ref().filter(|_| looks == FAULTY_LOOKS) else { return };
        tracing::warn!(
            %error,
            "the new files of the certificate for clients cannot be used: the one that is presented stays"
        );
        self.metrics.client_certificate(self.served.certificate.not_after(), false);
        self.metrics.client_certificate_reloads.with_label_values(&["failed"]).inc();
    }

    /// A shard that is far behind is told at the next look.
    fn tell(&mut self) {
        for (shard, untold) in self.shards.iter().zip(&mut self.untold) {
            if let Some(config) = untold.take()
                && let Err(ToShard::Https(kept)) = shard.send(ToShard::Https(config))
            {
                *untold = Some(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use dataplane::{mailbox, tls::server::MinVersion};
    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::config::Place;

    struct Bench {
        directory: tempfile::TempDir,
        files: TlsFiles,
        metrics: Arc<Metrics>,
    }

    fn issue() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["box.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    impl Bench {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let file = |name: &str| (directory.path().join(name), Place::START);
            let files =
                TlsFiles { cert: file("cert.pem"), key: file("key.pem"), min_version: MinVersion::Tls12 };
            let bench = Self { directory, files, metrics: Arc::new(Metrics::new().unwrap()) };
            bench.write(&issue());
            bench
        }

        fn write(&self, (cert, key): &(String, String)) {
            fs::write(&self.files.cert.0, cert).unwrap();
            fs::write(&self.files.key.0, key).unwrap();
        }

        fn watch(&self, capacity: usize) -> (Watch, mailbox::ThreadInbox<ToShard>) {
            let (sender, inbox) = mailbox::for_thread(capacity);
            let served = load(&self.files).unwrap();
            (Watch::new(self.files.clone(), served, vec![sender], Arc::clone(&self.metrics)), inbox)
        }

        fn metric(&self, line: &str) -> bool {
            String::from_utf8(self.metrics.render()).unwrap().lines().any(|found| found == line)
        }
    }

    fn told(inbox: &mailbox::ThreadInbox<ToShard>) -> usize {
        let mut count = 0;
        while let Some(mail) = inbox.try_pop() {
            assert!(matches!(mail, ToShard::Https(_)), "{mail:?}");
            count += 1;
        }
        count
    }

    #[test]
    fn renewed_files_are_taken_up_once_however_they_are_replaced() {
        let bench = Bench::new();
        let (mut watch, inbox) = bench.watch(8);
        let mut look = || {
            watch.look();
            watch.tell();
            told(&inbox)
        };
        assert_eq!(look(), 0);
        for _ in 0..50 {
            bench.write(&issue());
            assert_eq!([look(), look()], [1, 0]);
        }
        // By renames, one file after the other: in between they do not belong together.
        let (cert, key) = issue();
        let other = bench.directory.path().join("other");
        fs::write(&other, cert).unwrap();
        fs::rename(&other, &bench.files.cert.0).unwrap();
        assert_eq!(look(), 0);
        fs::write(&other, key).unwrap();
        fs::rename(&other, &bench.files.key.0).unwrap();
        assert_eq!(look(), 1);
        assert!(bench.metric("iop_edge_client_certificate_reloads_total{outcome=\"ok\"} 51"));
        assert!(bench.metric("iop_edge_client_certificate_reloads_total{outcome=\"failed\"} 0"));
        assert!(bench.metric("iop_edge_client_certificate_current 1"));
    }

    #[test]
    fn files_that_cannot_be_used_change_nothing_and_are_told_once() {
        let bench = Bench::new();
        let good = (
            fs::read_to_string(&bench.files.cert.0).unwrap(),
            fs::read_to_string(&bench.files.key.0).unwrap(),
        );
        let (mut watch, inbox) = bench.watch(8);
        let mut looks = |count: u32| {
            for _ in 0..count {
                watch.look();
                watch.tell();
            }
            assert_eq!(told(&inbox), 0);
        };
        bench.write(&(issue().0, issue().1));
        looks(FAULTY_LOOKS - 1);
        assert!(bench.metric("iop_edge_client_certificate_current 1"));
        looks(3 * FAULTY_LOOKS);
        assert!(bench.metric("iop_edge_client_certificate_current 0"));
        assert!(bench.metric("iop_edge_client_certificate_reloads_total{outcome=\"failed\"} 1"));
        fs::remove_file(&bench.files.key.0).unwrap();
        looks(3 * FAULTY_LOOKS);
        assert!(bench.metric("iop_edge_client_certificate_reloads_total{outcome=\"failed\"} 2"));
        bench.write(&good);
        looks(1);
        assert!(bench.metric("iop_edge_client_certificate_current 1"));
        assert!(bench.metric("iop_edge_client_certificate_reloads_total{outcome=\"ok\"} 0"));
    }

    #[test]
    fn a_shard_whose_mailbox_is_full_is_told_later_and_only_of_the_last() {
        let bench = Bench::new();
        let (mut watch, inbox) = bench.watch(1);
        watch.shards[0].send(ToShard::Drain).unwrap();
        for _ in 0..2 {
            bench.write(&issue());
            watch.look();
            watch.tell();
        }
        assert!(matches!(inbox.try_pop(), Some(ToShard::Drain)) && inbox.try_pop().is_none());
        watch.look();
        watch.tell();
        let Some(ToShard::Https(config)) = inbox.try_pop() else { panic!("it is told") };
        assert!(Arc::ptr_eq(&config, &watch.served.config));
    }
}
