//! Which byte strings of a certificate are an identity, and which are not.

use iop_proto::identity::{
    NAME_BYTES_MAX, Name, NameError, Role, TRUST_DOMAIN_BYTES_MAX, TrustDomain, TrustDomainError,
    URI_BYTES_MAX, WorkloadId, WorkloadIdError,
};
use proptest::prelude::*;

fn parse(uri: impl AsRef<[u8]>) -> Result<WorkloadId, WorkloadIdError> {
    WorkloadId::from_uri_bytes(uri.as_ref())
}

#[test]
fn uri_of_an_edge_and_of_a_node_give_their_parts() {
    for (uri, role, name) in [
        ("spiffe://iop.local/iop/edge/edge-1", Role::Edge, "edge-1"),
        ("spiffe://iop.local/iop/node/gpu_07.rack-a", Role::Node, "gpu_07.rack-a"),
    ] {
        let id = parse(uri).unwrap();
        assert_eq!(id.trust_domain, TrustDomain::default());
        assert_eq!((id.role, id.name.as_str()), (role, name));
        assert_eq!(id.to_uri(), uri);
    }
}

#[test]
fn byte_outside_the_alphabet_is_refused_where_it_stands() {
    for (uri, position, byte) in [
        (&b"spiffe://iop.local/iop/node/a\0"[..], 29, 0),
        (b"spiffe://iop.local\0.evil/iop/node/a", 18, 0),
        (b"spiffe://iop.local/iop/node/a%2e", 29, b'%'),
        (b"spiffe://iop.local/iop/node/A", 28, b'A'),
        (b"spiffe://IOP.local/iop/node/a", 9, b'I'),
        (b"spiffe://iop.local/Iop/node/a", 19, b'I'),
        (b"spiffe://iop.local:443/iop/node/a", 18, b':'),
        (b"spiffe://user@iop.local/iop/node/a", 13, b'@'),
        (b"spiffe://iop.local/iop/node/a?b", 29, b'?'),
        (b"spiffe://iop.local/iop/node/a#b", 29, b'#'),
        (b"spiffe://iop.local/iop/node/a b", 29, b' '),
        (b"spiffe://iop.local/iop/node/a\n", 29, b'\n'),
        (b"spiffe://iop.local/iop/node/\xc3\xa9", 28, 0xc3),
        (b"spiffe://iop.local/iop/node/\xff", 28, 0xff),
        (b"spiffe://iop.local\\iop/node/a", 18, b'\\'),
    ] {
        assert_eq!(parse(uri), Err(WorkloadIdError::Byte { position, byte }), "{}", uri.escape_ascii());
    }
}

#[test]
fn uri_of_another_form_is_refused_with_its_reason() {
    use WorkloadIdError as E;
    for (uri, error) in [
        ("", E::Scheme),
        ("https://iop.local/iop/node/a", E::Scheme),
        ("SPIFFE://iop.local/iop/node/a", E::Scheme),
        ("spiffe:/iop.local/iop/node/a", E::Scheme),
        (" spiffe://iop.local/iop/node/a", E::Scheme),
        ("spiffe:///iop/node/a", E::TrustDomain(TrustDomainError::Empty)),
        ("spiffe://.local/iop/node/a", E::TrustDomain(TrustDomainError::EmptyLabel)),
        ("spiffe://iop..local/iop/node/a", E::TrustDomain(TrustDomainError::EmptyLabel)),
        ("spiffe://../iop/node/a", E::TrustDomain(TrustDomainError::EmptyLabel)),
        ("spiffe://iop.local", E::SegmentCount(0)),
        ("spiffe://iop.local/", E::EmptySegment),
        ("spiffe://iop.local/iop/node/", E::EmptySegment),
        ("spiffe://iop.local/iop/node/a/", E::EmptySegment),
        ("spiffe://iop.local//node/a", E::EmptySegment),
        ("spiffe://iop.local/iop//a", E::EmptySegment),
        ("spiffe://iop.local/iop/node/..", E::DotSegment),
        ("spiffe://iop.local/iop/../a", E::DotSegment),
        ("spiffe://iop.local/./node/a", E::DotSegment),
        ("spiffe://iop.local/iop/edge/a/../../node/b", E::DotSegment),
        ("spiffe://iop.local/iop/node", E::SegmentCount(2)),
        ("spiffe://iop.local/iop/node/a/b", E::SegmentCount(4)),
        ("spiffe://iop.local/other/node/a", E::System),
        ("spiffe://iop.local/iop/nodes/a", E::Role),
        ("spiffe://iop.local/iop/admin/a", E::Role),
        ("spiffe://iop.local/iop/node/-a", E::Name(NameError::FirstByte)),
        ("spiffe://iop.local/iop/node/.a", E::Name(NameError::FirstByte)),
    ] {
        assert_eq!(parse(uri), Err(error), "{uri}");
    }
}

#[test]
fn lengths_are_bounded_and_the_longest_parts_fit_together() {
    let domain = "d".repeat(TRUST_DOMAIN_BYTES_MAX);
    let name = "n".repeat(NAME_BYTES_MAX);
    let uri = format!("spiffe://{domain}/iop/node/{name}");
    assert_eq!(uri.len(), URI_BYTES_MAX);
    assert_eq!(parse(&uri).unwrap().to_uri(), uri);

    assert_eq!(parse(format!("{uri}n")), Err(WorkloadIdError::TooLong(URI_BYTES_MAX + 1)));
    let long = format!("spiffe://d/iop/node/{name}n");
    assert_eq!(parse(long), Err(WorkloadIdError::Name(NameError::TooLong(64))));
    let long = format!("spiffe://{domain}d/iop/node/n");
    assert_eq!(parse(long), Err(WorkloadIdError::TrustDomain(TrustDomainError::TooLong(174))));
}

#[test]
fn name_is_a_short_lower_case_word() {
    for good in ["a", "0", "edge-1", "gpu.rack_7", "a..b", &"x".repeat(63)] {
        assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
    }
    for (bad, error) in [
        ("", NameError::Empty),
        ("-a", NameError::FirstByte),
        ("..", NameError::FirstByte),
        ("_", NameError::FirstByte),
        ("aB", NameError::Byte { position: 1, byte: b'B' }),
        ("a/b", NameError::Byte { position: 1, byte: b'/' }),
        ("a\0", NameError::Byte { position: 1, byte: 0 }),
        (&"x".repeat(64), NameError::TooLong(64)),
    ] {
        assert_eq!(bad.parse::<Name>(), Err(error), "{bad:?}");
    }
}

#[test]
fn map_keyed_by_names_is_asked_with_a_text() {
    let name: Name = "node-a".parse().unwrap();
    let hashed = std::collections::HashSet::from([name.clone()]);
    let ordered = std::collections::BTreeSet::from([name]);
    assert!(hashed.contains("node-a") && ordered.contains("node-a"));
    assert!(!hashed.contains("node-b"));
}

proptest! {
    #[test]
    fn accepted_uri_is_reproduced_byte_for_byte(
        uri in "(spiffe://)?[a-z.]{0,8}(/(iop|node|edge|[a-zA-Z%.-]{0,3})){0,4}"
    ) {
        if let Ok(id) = parse(&uri) {
            prop_assert_eq!(id.to_uri(), uri);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(raw in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&raw);
        let _ = Name::from_bytes(&raw);
        let _ = TrustDomain::from_bytes(&raw);
    }

    #[test]
    fn every_valid_identity_survives_its_uri(
        domain in "[a-z0-9_-]{1,20}(\\.[a-z0-9_-]{1,20}){0,4}",
        edge in any::<bool>(),
        name in "[a-z0-9][a-z0-9._-]{0,62}",
    ) {
        let role = if edge { Role::Edge } else { Role::Node };
        let id = WorkloadId::new(domain.parse().unwrap(), role, name.parse().unwrap());
        prop_assert_eq!(parse(id.to_uri()), Ok(id));
    }
}
