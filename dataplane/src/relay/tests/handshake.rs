//! Handshakes over real sockets, good and bad.

use std::time::Duration;

use bytes::BytesMut;
use futures::join;
use proto::identity::Role;
use rustls::AlertDescription;

use super::loopback::{DRIVERS, Edge, Log, on_shard, soon};
use crate::{
    clock,
    relay::{CloseReason, HandshakeError, Link, LinkLimits, accept, connect},
    tls::{
        config::server_name,
        refusal::{Origin, Refusal},
    },
};

// req: IDN-1
#[test]
fn both_ends_know_each_other_after_the_handshake() {
    for driver in DRIVERS {
        on_shard(driver, || async {
            let (edge, node) = Edge::new().connection().await;
            let (of_node, of_edge) = (edge.session.peer().unwrap(), node.session.peer().unwrap());
            assert_eq!((of_node.role(), of_node.name().as_str()), (Role::Node, "box1"));
            assert_eq!((of_edge.role(), of_edge.name().as_str()), (Role::Edge, "edge-1"));
        });
    }
}

// req: IDN-2
#[test]
fn a_refused_node_learns_it_from_the_alert_on_its_first_read() {
    for driver in DRIVERS {
        on_shard(driver, || async {
            let mut edge = Edge::new();
            let stranger = edge.deployment.stranger();
            let (sockets, server) = (edge.sockets().await, edge.deployment.edge());
            let (refused, reason) = join!(accept(sockets.0, server, soon()), async {
                let node = connect(sockets.1, stranger, server_name("localhost"), soon()).await.unwrap();
                Link::new(node.session, LinkLimits::default())
                    .run(node.stream, node.early, &mut Log::default())
                    .await
            });
            assert_eq!(refused.unwrap_err().refusal(), Some(Refusal::UnknownCa));
            let expected = CloseReason::Tls {
                refusal: Refusal::UnknownCa,
                origin: Origin::Peer,
                alert: Some(AlertDescription::UnknownCA),
            };
            assert_eq!(reason, expected);
            assert_eq!(reason.to_string(), "tls: the peer refused us: unknown_ca (alert UnknownCA)");
        });
    }
}

#[test]
fn plaintext_on_the_node_port_is_told_apart_and_gets_no_answer() {
    for driver in DRIVERS {
        on_shard(driver, || async {
            let mut edge = Edge::new();
            let (accepted, mut dialled) = edge.sockets().await;
            let server = edge.deployment.edge();
            let (refused, got) = join!(accept(accepted, server, soon()), async {
                dialled.write_all(b"GET / HTTP/1.1\r\n\r\n".to_vec(), soon()).await.0.unwrap();
                let mut got = BytesMut::new();
                let _end = dialled.read_some(&mut got, 1000).await;
                got
            });
            assert_eq!(refused.unwrap_err().refusal(), Some(Refusal::Plaintext));
            assert!(got.is_empty());
        });
    }
}

#[test]
fn a_handshake_that_does_not_end_is_given_up_at_its_deadline() {
    for driver in DRIVERS {
        on_shard(driver, || async {
            let mut edge = Edge::new();
            // On either end: a peer that says nothing at all.
            for dialling in [false, true] {
                let (accepted, dialled) = edge.sockets().await;
                let (server, node) = (edge.deployment.edge(), edge.deployment.node());
                let begin = clock::now();
                let deadline = begin + Duration::from_millis(200);
                let (given_up, _silent) = if dialling {
                    (connect(dialled, node, server_name("localhost"), deadline).await, accepted)
                } else {
                    (accept(accepted, server, deadline).await, dialled)
                };
                assert_eq!(given_up.unwrap_err().refusal(), Some(Refusal::HandshakeTimeout));
                assert!(clock::now() - begin >= Duration::from_millis(200));
            }
        });
    }
}

#[test]
fn a_peer_that_hangs_up_in_the_middle_is_no_refusal() {
    for driver in DRIVERS {
        on_shard(driver, || async {
            let mut edge = Edge::new();
            let (accepted, dialled) = edge.sockets().await;
            drop(dialled);
            let error = accept(accepted, edge.deployment.edge(), soon()).await.unwrap_err();
            assert!(matches!(error, HandshakeError::Closed), "{error:?}");
            assert_eq!(error.refusal(), None);
        });
    }
}
