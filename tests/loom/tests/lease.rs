//! A lease between the connection's shard, which is about to send its request, and the request's shard, which gives it up.

use std::sync::Arc;

use control::input::LeaseId;
use iop_loom::{
    every_interleaving, interleavings,
    lease::{Claim, Lease, Returns},
    mail::ToControl,
    mailbox::{ThreadInbox, for_thread},
};
use loom::thread;

// req: FEN-7
#[test]
fn a_request_is_sent_or_revoked_and_never_both() {
    every_interleaving(|| {
        let claim = Claim::default();
        let (connections, fenced) = (claim.clone(), claim.clone());
        let sending = thread::spawn(move || connections.send());
        let revoking = thread::spawn(move || fenced.revoke());
        // The holder gives it up as well, whatever the others do.
        let _given_up = claim.revoke();
        let (sent, revoked) = (sending.join().unwrap(), revoking.join().unwrap());
        assert!(sent != revoked, "sent {sent}, revoked {revoked}");
        assert_eq!(claim.revoke(), revoked, "what is settled stays");
        assert!(!claim.send());
    });
}

// req: FEN-7
#[test]
fn what_could_not_be_sent_after_all_is_never_sent_once_it_is_revoked() {
    every_interleaving(|| {
        let claim = Claim::default();
        let connections = claim.clone();
        let sending = thread::spawn(move || {
            // As a link that cannot send does, whether it had claimed it or not; then it is asked once more.
            let _claimed = connections.send();
            connections.unsend();
            connections.send()
        });
        let revoked = claim.revoke();
        let sent = sending.join().unwrap();
        assert!(!(revoked && sent), "it was revoked, and went out");
    });
}

/// As the control thread (`ControlLoop::run`): counts the leases that are back, takes the mail, then takes so many leases;
/// then sleeps. Gives both in the order in which they came, the mail as 0.
fn collect(inbox: &ThreadInbox<ToControl>, returns: &Returns, count: usize) -> Vec<(u64, bool)> {
    inbox.adopt();
    let mut collected = Vec::new();
    loop {
        let back = returns.len();
        for _ in 0..inbox.len() {
            collected.extend(inbox.try_pop().map(|_| (0, false)));
        }
        for _ in 0..back {
            collected.extend(returns.pop().map(|(lease, sent)| (lease.0, sent)));
        }
        if collected.len() >= count {
            return collected;
        }
        inbox.park(None, || !returns.is_empty());
    }
}

// req: FEN-2
#[test]
fn a_dropped_lease_wakes_control_and_says_truly_whether_its_request_went_out() {
    every_interleaving(|| {
        let (bell, inbox) = for_thread(2);
        let returns = Arc::new(Returns::new(4, bell));
        let lease = Lease::new(LeaseId(7), &returns);
        let claim = lease.claim().clone();
        let sending = thread::spawn(move || claim.send());
        let holding = thread::spawn(move || drop(lease));
        let came_back = collect(&inbox, &returns, 1);
        let sent = sending.join().unwrap();
        holding.join().unwrap();
        assert_eq!(came_back, [(7, sent)]);
        assert!(returns.is_empty(), "once");
    });
}

// req: FEN-2
#[test]
fn a_slot_that_is_free_again_reaches_who_waits_for_one_though_it_wakes_nobody_otherwise() {
    interleavings(4, || {
        let (bell, inbox) = for_thread(8);
        let (ended, admitted) = (bell.clone(), bell.clone());
        let returns = Arc::new(Returns::new(8, bell));
        let mut lease = Lease::new(LeaseId(1), &returns);
        let holding = thread::spawn(move || {
            // The end of the run is told, then its holder leaves.
            ended.send_unhurried(ToControl::Mail(1)).unwrap();
            lease.settle();
            drop(lease);
        });
        let asking = thread::spawn(move || admitted.send(ToControl::Mail(2)).unwrap());
        // As control: who asks waits for the one slot there is, and has it when the run's end is known.
        inbox.adopt();
        let (mut free, mut waits, mut granted) = (false, false, false);
        while !granted {
            while let Some(ToControl::Mail(mail)) = inbox.try_pop() {
                free |= mail == 1;
                waits |= mail == 2;
            }
            granted = free && waits;
            if granted {
                break;
            }
            let ready = || !returns.is_empty();
            if waits {
                inbox.park(None, ready)
            } else {
                inbox.doze(None, ready)
            }
            while returns.pop().is_some() {}
        }
        holding.join().unwrap();
        asking.join().unwrap();
    });
}

// req: FEN-2
#[test]
fn leases_of_two_holders_and_mail_come_through_one_bell() {
    interleavings(3, || {
        let (bell, inbox) = for_thread(2);
        let mail = bell.clone();
        let returns = Arc::new(Returns::new(4, bell));
        let (first, second) = (Lease::new(LeaseId(1), &returns), Lease::new(LeaseId(2), &returns));
        let holders = [
            thread::spawn(move || drop(first)),
            thread::spawn(move || {
                mail.send(ToControl::Mail(1)).unwrap();
                drop(second);
            }),
        ];
        let collected = collect(&inbox, &returns, 3);
        let at = |lease| collected.iter().position(|(number, _)| *number == lease).unwrap();
        assert!(
            at(0) < at(2),
            "what a holder told before it dropped its lease comes before it: {collected:?}"
        );
        assert!(collected.iter().all(|(_, sent)| !sent) && at(1) < 3);
        for holder in holders {
            holder.join().unwrap();
        }
    });
}
