//! The thread that watches the list of revoked tokens.
//!
//! It looks at the file instead of being told: a notification is lost when the file is replaced through a link, a mount or
//! an editor's rename, and a lost one would keep a stolen token alive.

use std::{collections::HashSet, path::PathBuf, sync::Arc, thread, time::Duration};

use dataplane::{clock, mailbox::Sender};

use super::List;
use crate::{mail::ToShard, marks::Marks, metrics::Metrics};

/// How often the file is looked at. Running streams end within a second of a change (PTK-1).
const PAUSE: Duration = Duration::from_millis(250);
const _: () = assert!(2 * PAUSE.as_millis() < 1000);

/// The watch.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    list: List,
    /// The tokens of this Edge.
    known: HashSet<Arc<str>>,
    seen: Option<Marks>,
    failing: bool,
    shards: Vec<Sender<ToShard>>,
    /// Tokens that each shard has yet to be told of.
    untold: Vec<Vec<Arc<str>>>,
    metrics: Arc<Metrics>,
}

impl Watch {
    /// A watch over the `known` tokens that goes on from `list`, of which the shards know.
    #[must_use]
    pub fn new(
        path: PathBuf,
        list: List,
        known: HashSet<Arc<str>>,
        shards: Vec<Sender<ToShard>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let untold = shards.iter().map(|_| Vec::new()).collect();
        metrics.tokens_revoked(list.iter().count(), true);
        Self { path, list, known, seen: None, failing: false, shards, untold, metrics }
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
        let read = Marks::of(&self.path).and_then(|marks| {
            if self.seen == Some(marks) { Ok(None) } else { Ok(Some((marks, super::read(&self.path)?))) }
        });
        match read {
            Ok(None) => {}
            Ok(Some((marks, text))) => {
                self.seen = Some(marks).filter(|marks| marks.are_settled(clock::unix_seconds()));
                self.failing = false;
                let new =
                    super::announce(self.list.absorb(&text), |token_ref| self.known.contains(token_ref));
                self.untold.iter_mut().for_each(|untold| untold.extend_from_slice(&new));
                self.metrics.tokens_revoked(self.list.iter().count(), true);
            }
            Err(error) => {
                self.seen = None;
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        file = %self.path.display(),
                        %error,
                        "the list of revoked tokens cannot be read: what was revoked stays so, nothing new is learnt"
                    );
                    self.metrics.tokens_revoked(self.list.iter().count(), false);
                }
            }
        }
    }

    /// A shard that is far behind is told at the next look.
    fn tell(&mut self) {
        for (shard, untold) in self.shards.iter().zip(&mut self.untold) {
            if !untold.is_empty()
                && let Err(ToShard::Revoked(kept)) = shard.send(ToShard::Revoked(std::mem::take(untold)))
            {
                *untold = kept;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use dataplane::mailbox;

    use super::*;

    fn watch(path: &Path, capacity: usize) -> (Watch, mailbox::ThreadInbox<ToShard>) {
        let (sender, inbox) = mailbox::for_thread(capacity);
        let metrics = Arc::new(Metrics::new().unwrap());
        let known = ["laptop", "phone", "tablet", "watch"].map(Arc::from).into();
        (Watch::new(path.to_owned(), List::default(), known, vec![sender], metrics), inbox)
    }

    fn told(inbox: &mailbox::ThreadInbox<ToShard>) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(mail) = inbox.try_pop() {
            let ToShard::Revoked(refs) = mail else { panic!("{mail:?}") };
            all.extend(refs.iter().map(ToString::to_string));
        }
        all
    }

    // req: PTK-1
    #[test]
    fn every_change_of_the_file_is_seen_and_its_loss_gives_nothing_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("revoked");
        fs::write(&path, "").unwrap();
        let (mut watch, inbox) = watch(&path, 8);
        let mut step = |change: &dyn Fn()| {
            change();
            watch.look();
            watch.tell();
            told(&inbox)
        };
        assert!(step(&|| {}).is_empty());
        assert_eq!(step(&|| fs::write(&path, "laptop\n").unwrap()), ["laptop"]);
        assert!(step(&|| {}).is_empty());
        // The same length at the same moment, and a replacement by rename.
        assert_eq!(step(&|| fs::write(&path, "tablet\n").unwrap()), ["tablet"]);
        let other = directory.path().join("other");
        let replace = || {
            fs::write(&other, "phone\n").unwrap();
            fs::rename(&other, &path).unwrap();
        };
        assert_eq!(step(&replace), ["phone"]);
        assert!(step(&|| fs::remove_file(&path).unwrap()).is_empty());
        assert_eq!(step(&|| fs::write(&path, "laptop\nwatch\n").unwrap()), ["watch"]);
    }

    #[test]
    fn shards_are_told_of_their_own_tokens_alone_however_long_the_list_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("revoked");
        let others: String = (0..400_000).map(|line| format!("{line}\n")).collect();
        fs::write(&path, others + "laptop\n").unwrap();
        let (mut watch, inbox) = watch(&path, 8);
        watch.look();
        watch.tell();
        assert_eq!(told(&inbox), ["laptop"]);
    }

    #[test]
    fn a_shard_whose_mailbox_is_full_is_told_later() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("revoked");
        fs::write(&path, "laptop\n").unwrap();
        let (mut watch, inbox) = watch(&path, 1);
        watch.shards[0].send(ToShard::Drain).unwrap();
        watch.look();
        watch.tell();
        assert!(matches!(inbox.try_pop(), Some(ToShard::Drain)) && inbox.try_pop().is_none());
        watch.look();
        watch.tell();
        assert_eq!(told(&inbox), ["laptop"]);
    }
}
