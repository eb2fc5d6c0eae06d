//! Keys of the process: `edge`, `listen`, `identity`, `limits`, `logging`, `metrics`, `bootstrap` and single switches.

use super::{List, Opt};
use crate::config::shape::section;

section! {
    /// The process itself.
    pub struct Edge {
        /// Workload name; must be the one in `identity.cert_file`. `[a-z0-9][a-z0-9._-]{0,62}`
        #[schemars(extend("default" = "edge-1", "x-kind" = "name"))]
        pub name: Opt<String>,
        /// Threads that serve connections. 0 = one for each of `cpus`, else cores − 1, at least 1.
        #[schemars(range(min = 0, max = 64), extend("default" = 0))]
        pub shards: Opt<i64>,
        /// One CPU for each shard; empty = not pinned.
        #[schemars(extend("default" = []))]
        pub cpus: List<i64>,
    }
}

section! {
    /// Where the Edge listens.
    pub struct Listen {
        /// Where clients connect: by plain HTTP, or by HTTPS where `listen.tls` is set and `listen.https` is not. An IPv6 address takes IPv6
        /// alone, so that `[::]` stands beside `0.0.0.0`. Empty = nowhere, where there is `listen.https`.
        #[schemars(extend("default" = ["0.0.0.0:8080", "[::]:8080"], "x-kind" = "addresses"))]
        pub http: List<String>,
        /// Where clients connect by HTTPS, if `listen.http` is to stay plain HTTP.
        #[schemars(extend("default" = [], "x-kind" = "addresses"))]
        pub https: List<String>,
        /// The certificate for clients. Both files set = HTTPS.
        pub tls: Opt<ListenTls>,
        /// Where Nodes connect, always with mutual TLS.
        #[schemars(extend("default" = ["0.0.0.0:9443"], "x-kind" = "addresses"))]
        pub node: List<String>,
        /// `/healthz`, `/readyz`, `/metrics`, `/status`.
        #[schemars(extend("default" = "127.0.0.1:9090", "x-kind" = "address"))]
        pub ops: Opt<String>,
        /// Unix socket of [`iop-edge status`](operations.md#the-admin-socket), mode 0600. Empty = `iop-edge.sock` in
        /// `$RUNTIME_DIRECTORY` (systemd sets it), or none where that is not set.
        #[schemars(extend("default" = "", "x-kind" = "file"))]
        pub admin_socket: Opt<String>,
    }
}

section! {
    /// HTTPS for clients.
    pub struct ListenTls {
        /// Certificate for clients, PEM, with the CAs between it and its root behind it. [Watched](operations.md#https): a renewed one is
        /// for new connections.
        #[schemars(extend("default" = "", "x-kind" = "file"))]
        pub cert_file: Opt<String>,
        /// Its private key, PEM, not encrypted.
        #[schemars(extend("default" = "", "x-kind" = "file"))]
        pub key_file: Opt<String>,
        /// Oldest version of TLS.
        #[schemars(extend("default" = "1.2", "x-words" = ["1.2", "1.3"]))]
        pub min_version: Opt<String>,
    }
}

section! {
    /// The Edge's certificate, and the CA that Nodes must be signed by.
    pub struct Identity {
        /// Certificate of the Edge, PEM.
        #[schemars(extend("default" = "pki/edge.crt", "x-kind" = "file"))]
        pub cert_file: Opt<String>,
        /// Its private key, PEM.
        #[schemars(extend("default" = "pki/edge.key", "x-kind" = "file"))]
        pub key_file: Opt<String>,
        /// The CA that Nodes must be signed by, PEM.
        #[schemars(extend("default" = "pki/node-ca.crt", "x-kind" = "file"))]
        pub node_ca_file: Opt<String>,
        /// Revoked certificates. Later release.
        #[schemars(extend("default" = "", "x-kind" = "file"))]
        pub crl_file: Opt<String>,
    }
}

section! {
    /// Bounds of what clients may do.
    pub struct Limits {
        /// Longest head of a client's request in bytes.
        #[schemars(range(min = 1024, max = 1_048_576), extend("default" = 65_536))]
        pub head_bytes: Opt<i64>,
        /// Most header fields of a client's request.
        #[schemars(range(min = 16, max = 1000), extend("default" = 100))]
        pub head_fields: Opt<i64>,
        /// Longest time that a head may take.
        #[schemars(range(min = 1, max = 86_400_000), extend("default" = 10_000))]
        pub head_timeout_ms: Opt<i64>,
        /// Longest request body in bytes. The most that may be set is what a Node takes of bodies in all.
        #[schemars(range(min = 1, max = 268_435_456), extend("default" = 33_554_432))]
        pub body_bytes: Opt<i64>,
        /// Time in which a body must bring its share again and again: what `body_min_rate` makes of this time, or its end.
        #[schemars(range(min = 1, max = 86_400_000), extend("default" = 10_000))]
        pub body_timeout_ms: Opt<i64>,
        /// Least rate of a body in bytes per second; 0 = any progress will do.
        #[schemars(range(min = 0, max = 1_073_741_824), extend("default" = 1024))]
        pub body_min_rate: Opt<i64>,
        /// Most memory of all request bodies together in bytes, at least twice `limits.body_bytes`.
        #[schemars(
            range(min = 1, max = 1_099_511_627_776_i64),
            extend("x-default" = "`536870912`, or twice `limits.body_bytes` where that is more")
        )]
        pub body_memory_bytes: Opt<i64>,
        /// Longest time that a client's connection may be idle between requests.
        #[schemars(range(min = 1, max = 86_400_000), extend("default" = 100_000))]
        pub keepalive_idle_ms: Opt<i64>,
        /// Requests at a time on one HTTP/2 connection of a client; more are refused in a way that has it send them again.
        #[schemars(range(min = 1, max = 10_000), extend("default" = 100))]
        pub h2_streams: Opt<i64>,
        /// Longest time in which a client may take nothing of what waits for it; one that reads slowly takes something all the time.
        #[schemars(range(min = 1, max = 86_400_000), extend("default" = 60_000))]
        pub write_stall_ms: Opt<i64>,
        /// Time that running requests get when the Edge is told to stop.
        #[schemars(range(min = 0, max = 86_400_000), extend("default" = 30_000))]
        pub drain_grace_ms: Opt<i64>,
    }
}

section! {
    /// The log on standard error.
    pub struct Logging {
        /// Least severe level that is logged.
        #[schemars(extend("default" = "info", "x-words" = ["error", "warn", "info", "debug", "trace"]))]
        pub level: Opt<String>,
        /// Form of a line.
        #[schemars(extend("default" = "text", "x-words" = ["text", "json"]))]
        pub format: Opt<String>,
    }
}

section! {
    /// The metrics on the ops listener.
    pub struct Metrics {
        /// Whether `/metrics` is served.
        #[schemars(extend("default" = true))]
        pub enabled: Opt<bool>,
    }
}

section! {
    /// A surface that can only be switched so far.
    pub struct Switch {
        /// Later release.
        #[schemars(extend("default" = false))]
        pub enabled: Opt<bool>,
    }
}

section! {
    /// What Nodes are given to join.
    pub struct Bootstrap {
        /// Where the join file of a Node points, `host:port`. Not applied yet: `iop-edge pki` keeps its own.
        #[schemars(extend("default" = "", "x-kind" = "host:port"))]
        pub advertise: Opt<String>,
    }
}
