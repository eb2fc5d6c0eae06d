//! Two sessions joined in memory, and the parties of a deployment.

use std::sync::Arc;

use bytes::BytesMut;
use proto::identity::Role;
use rustls::{ClientConfig, ServerConfig};

use super::certs::{Authority, Leaf};
use crate::tls::{
    config::{edge_server_config, node_client_config, server_name},
    refusal::{Refusal, TlsFault},
    session::Session,
};

/// The two CAs.
pub(crate) struct Deployment {
    pub(crate) edge_ca: Authority,
    pub(crate) node_ca: Authority,
}

impl Deployment {
    pub(crate) fn new() -> Self {
        Self { edge_ca: Authority::new("edge-ca"), node_ca: Authority::new("node-ca") }
    }

    /// A good Edge named edge-1.
    pub(crate) fn edge(&self) -> Arc<ServerConfig> {
        let identity = self.edge_ca.issue(&Leaf::edge("edge-1")).identity(Role::Edge);
        edge_server_config(&identity, &self.node_ca.trust()).unwrap()
    }

    /// A good Node named box1 that looks for edge-1.
    pub(crate) fn node(&self) -> Arc<ClientConfig> {
        let identity = self.node_ca.issue(&Leaf::node("box1")).identity(Role::Node);
        node_client_config(&identity, &self.edge_ca.trust(), "edge-1".parse().unwrap()).unwrap()
    }
}

/// A dialling and a dialled session with nothing in between.
pub(crate) struct Pair {
    pub(crate) node: Session,
    pub(crate) edge: Session,
    /// What the Node has received in plaintext.
    pub(crate) node_got: BytesMut,
    /// What the Edge has received in plaintext.
    pub(crate) edge_got: BytesMut,
    pub(crate) node_fault: Option<TlsFault>,
    pub(crate) edge_fault: Option<TlsFault>,
}

impl Pair {
    pub(crate) fn new(node: Arc<ClientConfig>, edge: Arc<ServerConfig>) -> Self {
        Self {
            node: Session::client(node, server_name("127.0.0.1")).unwrap(),
            edge: Session::server(edge).unwrap(),
            node_got: BytesMut::new(),
            edge_got: BytesMut::new(),
            node_fault: None,
            edge_fault: None,
        }
    }

    pub(crate) fn good() -> Self {
        let deployment = Deployment::new();
        let mut pair = Self::new(deployment.node(), deployment.edge());
        pair.settle();
        pair
    }

    /// Passes bytes back and forth until both ends are silent.
    pub(crate) fn settle(&mut self) {
        while self.node.wants_write() || self.edge.wants_write() {
            let mut bytes = Vec::new();
            self.node.flush(&mut bytes);
            self.feed_edge(&bytes);
            bytes.clear();
            self.edge.flush(&mut bytes);
            self.feed_node(&bytes);
        }
    }

    pub(crate) fn feed_edge(&mut self, bytes: &[u8]) {
        if let Err(fault) = self.edge.receive(bytes, &mut self.edge_got) {
            self.edge_fault.get_or_insert(fault);
        }
    }

    pub(crate) fn feed_node(&mut self, bytes: &[u8]) {
        if let Err(fault) = self.node.receive(bytes, &mut self.node_got) {
            self.node_fault.get_or_insert(fault);
        }
    }

    pub(crate) fn edge_refusal(&self) -> Option<Refusal> {
        self.edge_fault.as_ref().map(TlsFault::refusal)
    }

    pub(crate) fn node_refusal(&self) -> Option<Refusal> {
        self.node_fault.as_ref().map(TlsFault::refusal)
    }
}
