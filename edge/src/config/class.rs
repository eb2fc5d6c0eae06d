//! What a changed value needs before it counts (CLS-1..5): a closed table, one line for each key of the file. A key without a
//! line fails a test, so nobody adds one without having decided.

/// When a changed value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// By a refresh: existing leases stay, new admissions and everything that waits go by the new value.
    Live,
    /// From the next start on.
    Restart,
}

impl Class {
    /// Its word on the page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Restart => "restart",
        }
    }
}

use Class::{Live, Restart};

/// Every key, in the order of the page. `[]` is any item of a list, `NAME` any name.
pub const TABLE: &[(&str, Class)] = &[
    ("edge.name", Restart),
    ("edge.shards", Restart),
    ("edge.cpus", Restart),
    ("listen.http", Restart),
    ("listen.https", Restart),
    ("listen.tls.cert_file", Restart),
    ("listen.tls.key_file", Restart),
    ("listen.tls.min_version", Restart),
    ("listen.node", Restart),
    ("listen.ops", Restart),
    ("listen.admin_socket", Restart),
    ("identity.cert_file", Restart),
    ("identity.key_file", Restart),
    ("identity.node_ca_file", Restart),
    ("identity.crl_file", Restart),
    ("limits.head_bytes", Restart),
    ("limits.head_fields", Restart),
    ("limits.head_timeout_ms", Restart),
    ("limits.body_bytes", Restart),
    ("limits.body_timeout_ms", Restart),
    ("limits.body_min_rate", Restart),
    ("limits.body_memory_bytes", Restart),
    ("limits.keepalive_idle_ms", Restart),
    ("limits.h2_streams", Restart),
    ("limits.write_stall_ms", Restart),
    ("limits.drain_grace_ms", Restart),
    ("logging.level", Restart),
    ("logging.format", Restart),
    ("metrics.enabled", Restart),
    ("bootstrap.advertise", Restart),
    ("console.enabled", Restart),
    ("control_plane.enabled", Restart),
    ("a2a.enabled", Restart),
    ("openai.enabled", Restart),
    ("openai.provider_id", Restart),
    ("openai.principal_tokens[].token_ref", Restart),
    ("openai.principal_tokens[].token_hash_sha256", Restart),
    ("openai.principal_tokens[].principal_ref", Restart),
    ("openai.principal_tokens[].principal_alias", Restart),
    ("openai.revoked_tokens_file", Restart),
    ("openai.cors.allowed_origins", Restart),
    ("openai.provider_auth.enabled", Restart),
    ("openai.provider_auth.from_header", Restart),
    ("openai.provider_auth.target_header", Restart),
    ("openai.provider_auth.scheme", Restart),
    ("openai.provider_auth.required", Restart),
    ("openai.model_routes[].model", Restart),
    ("openai.model_routes[].adapter", Restart),
    ("openai.model_routes[].target", Restart),
    ("openai.model_routes[].provider_id", Restart),
    ("openai.keepalive.comment_ms", Restart),
    ("openai.keepalive.event_ms", Restart),
    ("openai.keepalive.tunnel", Restart),
    ("openai.usage.require", Restart),
    ("openai.response_wait_margin_ms", Restart),
    ("openai.stream_evidence_gate.enabled", Restart),
    ("openai.stream_evidence_gate.max_request_fault_recovery", Restart),
    ("openai.stream_evidence_gate.max_strategy_fault_recovery", Restart),
    ("openai.stream_evidence_gate.max_ingress_snapshot_bytes", Restart),
    ("openai.stream_evidence_gate.environment", Restart),
    ("openai.stream_evidence_gate.filters[].filter", Restart),
    ("openai.stream_evidence_gate.filters[].enabled", Restart),
    ("openai.stream_evidence_gate.filters[].enforcement", Restart),
    ("openai.stream_evidence_gate.filters[].capability", Restart),
    ("openai.stream_evidence_gate.filters[].hold_evidence_runes", Restart),
    ("openai.stream_evidence_gate.filters[].timeout_ms", Restart),
    ("openai.stream_evidence_gate.filters[].selectors[].environment", Restart),
    ("openai.stream_evidence_gate.filters[].selectors[].model_group", Restart),
    ("openai.stream_evidence_gate.filters[].selectors[].model", Restart),
    ("openai.stream_evidence_gate.filters[].selectors[].provider", Restart),
    ("openai.stream_evidence_gate.filters[].selectors[].enabled", Restart),
    ("openai.stream_evidence_gate.filters[].selectors[].enforcement", Restart),
    ("long_context_threshold_tokens", Live),
    ("provider_pool.max_queue", Live),
    ("provider_pool.queue_timeout_ms", Live),
    ("protocol_profiles.NAME.base", Restart),
    ("protocol_profiles.NAME.driver", Restart),
    ("protocol_profiles.NAME.base_url", Restart),
    ("protocol_profiles.NAME.operations", Restart),
    ("protocol_profiles.NAME.auth.header", Restart),
    ("protocol_profiles.NAME.auth.scheme", Restart),
    ("protocol_profiles.NAME.capabilities", Restart),
    ("protocol_profiles.NAME.model_mapping", Restart),
    ("protocol_profiles.NAME.extensions", Restart),
    ("models[].id", Restart),
    ("models[].display_name", Live),
    ("models[].providers", Live),
    ("models[].usage_attribution", Live),
    ("models[].context_window_tokens", Live),
    ("models[].default_max_tokens", Live),
    ("models[].min_max_tokens", Live),
    ("models[].default_thinking_token_budget", Live),
    ("nodes[].id", Restart),
    ("nodes[].alias", Restart),
    ("nodes[].token", Restart),
    ("nodes[].token_file", Restart),
    ("nodes[].runtime.concurrency", Live),
    ("nodes[].adapters[].name", Restart),
    ("nodes[].adapters[].type", Restart),
    ("nodes[].adapters[].enabled", Restart),
    ("nodes[].adapters[].settings.provider", Restart),
    ("nodes[].adapters[].settings.endpoint", Restart),
    ("nodes[].adapters[].settings.base_url", Restart),
    ("nodes[].adapters[].settings.headers", Restart),
    ("nodes[].providers[].id", Restart),
    ("nodes[].providers[].type", Restart),
    ("nodes[].providers[].category", Restart),
    ("nodes[].providers[].adapter", Restart),
    ("nodes[].providers[].profile", Restart),
    ("nodes[].providers[].models", Restart),
    ("nodes[].providers[].enabled", Live),
    ("nodes[].providers[].capacity", Live),
    ("nodes[].providers[].long_context_capacity", Live),
    ("nodes[].providers[].total_context_tokens", Live),
    ("nodes[].providers[].priority", Live),
    ("nodes[].providers[].response_stall_timeout_ms", Restart),
    ("nodes[].providers[].request_timeout_ms", Restart),
    // What they mean is the policy of the queue, when they mean anything (CFG-8).
    ("nodes[].providers[].max_queue", Live),
    ("nodes[].providers[].queue_timeout_ms", Live),
    ("nodes[].providers[].health.path", Restart),
    ("nodes[].providers[].health.generation", Restart),
    ("nodes[].providers[].provider", Restart),
    ("nodes[].providers[].endpoint", Restart),
    ("nodes[].providers[].base_url", Restart),
    ("nodes[].providers[].headers", Restart),
    ("nodes[].providers[].command", Restart),
    ("nodes[].providers[].args", Restart),
    ("nodes[].providers[].env", Restart),
    ("nodes[].providers[].mode", Restart),
    ("nodes[].providers[].resume_args", Restart),
    ("nodes[].providers[].output_format", Restart),
    ("nodes[].providers[].context_size", Restart),
];

/// The class of a key by its path in [`TABLE`].
#[must_use]
pub fn of(path: &str) -> Option<Class> {
    TABLE.iter().find(|(known, _)| *known == path).map(|(_, class)| *class)
}

/// The names directly under a section, in the order of the page; the file's own for an empty path.
pub(super) fn children(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for (path, _) in TABLE {
        let below = if section.is_empty() {
            Some(*path)
        } else {
            path.strip_prefix(section).and_then(|rest| rest.strip_prefix('.'))
        };
        let name = below.and_then(|below| below.split(['.', '[']).next());
        names.extend(name.filter(|name| !names.contains(name)));
    }
    names
}

/// Where a key of this name belongs: whole key paths, at most three.
pub(super) fn homes(name: &str) -> Vec<&'static str> {
    let mut homes: Vec<&'static str> = Vec::new();
    for (path, _) in TABLE {
        let mut end = 0;
        for part in path.split('.') {
            end += part.len();
            let here = path.get(..end).unwrap_or_default();
            end += 1;
            if part.trim_end_matches("[]") == name && !homes.contains(&here) && homes.len() < 3 {
                homes.push(here);
            }
        }
    }
    homes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misplaced_key_finds_its_home() {
        assert_eq!(homes("capacity"), ["nodes[].providers[].capacity"]);
        assert_eq!(homes("models"), ["models[]", "nodes[].providers[].models"]);
        assert_eq!(homes("NAME").len(), 1);
        assert!(homes("nothing").is_empty());
    }

    #[test]
    fn children_stand_in_the_order_of_the_page() {
        assert_eq!(children("logging"), ["level", "format"]);
        assert_eq!(children("nodes[].adapters[].settings"), ["provider", "endpoint", "base_url", "headers"]);
        assert_eq!(children("").first(), Some(&"edge"));
        assert_eq!(children("").len(), 16);
    }

    // The classes of CLS-1, CLS-2 and CLS-5; what a refresh does by them is proven where it is done.
    #[test]
    fn what_counts_without_a_restart_is_a_closed_set() {
        let live: Vec<_> = TABLE.iter().filter(|(_, class)| *class == Live).map(|(path, _)| *path).collect();
        assert_eq!(
            live,
            [
                "long_context_threshold_tokens",
                "provider_pool.max_queue",
                "provider_pool.queue_timeout_ms",
                "models[].display_name",
                "models[].providers",
                "models[].usage_attribution",
                "models[].context_window_tokens",
                "models[].default_max_tokens",
                "models[].min_max_tokens",
                "models[].default_thinking_token_budget",
                "nodes[].runtime.concurrency",
                "nodes[].providers[].enabled",
                "nodes[].providers[].capacity",
                "nodes[].providers[].long_context_capacity",
                "nodes[].providers[].total_context_tokens",
                "nodes[].providers[].priority",
                "nodes[].providers[].max_queue",
                "nodes[].providers[].queue_timeout_ms",
            ]
        );
        assert_eq!(of("protocol_profiles.NAME.base"), Some(Restart));
        assert_eq!(of("nodes[].providers[].response_stall_timeout_ms"), Some(Restart));
        assert_eq!(of("no.such.key"), None);
    }
}
