//! What is taken from a peer, what is skipped and what is refused.

mod raw;

use std::error::Error as _;

use bytes::Bytes;
use iop_proto::{
    convert::DecodeError,
    header::HeaderError,
    limits::*,
    message::{
        AdapterConfig, AdapterSettings, ErrorKind, Goodbye, Header, Message, NodeCommandResponse,
        NodeConfigPayload, Operation, RegisterResponse, RunEventKind, TunnelFrameKind, TunnelRequest,
    },
    run_input::{TEXT_TOOL_FALLBACK_KEY, TOOL_CALLS_KEY},
    validate::FieldError,
};
use raw::{bytes, envelope, int};

const REGISTER_REQUEST: u32 = 1;
const REGISTER_RESPONSE: u32 = 2;
const REFRESH_REQUEST: u32 = 5;
const REFRESH_RESPONSE: u32 = 6;
const RUN_REQUEST: u32 = 7;
const RUN_EVENT: u32 = 8;
const TUNNEL_REQUEST: u32 = 9;
const TUNNEL_FRAME: u32 = 10;
const BODY_CHUNK: u32 = 11;
const CANCEL: u32 = 12;
const COMMAND_REQUEST: u32 = 13;
const COMMAND_RESPONSE: u32 = 14;
const CREDIT: u32 = 15;
const GOODBYE: u32 = 18;

/// Decodes a message of stream 3.
fn of_run(member: u32, fields: &[Vec<u8>]) -> Result<Message, DecodeError> {
    Message::decode(envelope(member, &[vec![int(1, 3)], fields.to_vec()].concat()))
}

/// The field error of a message of stream 3.
fn refused(member: u32, fields: &[Vec<u8>]) -> FieldError {
    match of_run(member, fields) {
        Err(DecodeError::Run { stream: 3, error, .. }) => error,
        other => panic!("not refused for stream 3: {other:?}"),
    }
}

fn tunnel(fields: &[Vec<u8>]) -> TunnelRequest {
    match of_run(TUNNEL_REQUEST, fields) {
        Ok(Message::TunnelRequest(request)) => *request,
        other => panic!("no tunnel request: {other:?}"),
    }
}

fn config(fields: &[Vec<u8>]) -> Result<NodeConfigPayload, DecodeError> {
    match Message::decode(envelope(REFRESH_REQUEST, &[int(1, 1), bytes(2, fields.concat())]))? {
        Message::NodeConfigRefreshRequest(request) => Ok(request.config),
        other => panic!("no refresh: {other:?}"),
    }
}

// req: WIR-3
#[test]
fn unknown_member_and_unknown_fields_are_skipped() {
    for member in [20, 21, 1000, 536_870_911] {
        assert_eq!(Message::decode(envelope(member, &[int(1, 1)])), Ok(Message::Unknown), "member {member}");
    }
    let group = [&[0xbb, 0x06][..], &int(1, 1), &[0xbc, 0x06]].concat();
    let fixed = [&[0xad, 0x06][..], &[1, 2, 3, 4]].concat();
    let strangers = [int(100, 7), bytes(101, "x"), group, fixed];
    let known = bytes(GOODBYE, [bytes(1, "draining"), strangers.concat()].concat());
    let frame = Bytes::from([strangers.concat(), known, strangers.concat()].concat());
    assert_eq!(Message::decode(frame), Ok(Message::Goodbye(Goodbye { reason: "draining".to_owned() })));
}

// req: WIR-3
#[test]
fn malformed_frame_is_an_error() {
    for frame in [
        &[0xff][..],
        &[0x0a],
        &[0x0a, 5, 1],
        &[0x00, 0x00],
        &[0x7a, 2, 0x08],
        &[0x7f, 0],
        &[0x0b],
        &[0x0c],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &bytes(GOODBYE, bytes(1, [0xff, 0xfe])),
        &bytes(GOODBYE, int(1, 4)),
        &int(GOODBYE, 4),
        &bytes(CREDIT, bytes(1, "5")),
    ] {
        let error = Message::decode(Bytes::copy_from_slice(frame)).unwrap_err();
        assert!(matches!(error, DecodeError::Malformed(_)), "{frame:?} gave {error:?}");
        assert_eq!(error.refusal(), None);
        assert!(error.source().is_some());
    }
}

// req: STL-1
#[test]
fn stall_timeout_is_defaulted_and_its_bad_values_are_refused() {
    for (member, field) in [(TUNNEL_REQUEST, 15), (RUN_REQUEST, 10)] {
        let decoded =
            |value: i64| match of_run(member, &[int(field, value as u64)]).map_err(|error| error.refusal()) {
                Ok(Message::TunnelRequest(request)) => Ok(request.response_stall_timeout_ms),
                Ok(Message::RunRequest(request)) => Ok(request.response_stall_timeout_ms),
                Ok(other) => panic!("{other:?}"),
                Err(refusal) => Err(refusal),
            };
        assert_eq!(decoded(0), Ok(300_000));
        assert_eq!(decoded(1), Ok(1));
        assert_eq!(decoded(i64::MAX / 1_000_000), Ok(i64::MAX / 1_000_000));
        for bad in [-1, i64::MIN, i64::MAX / 1_000_000 + 1, i64::MAX] {
            assert_eq!(decoded(bad), Err(Some((3, ErrorKind::InvalidRequest))), "{bad}");
        }
        assert!(of_run(member, &[]).is_ok(), "an absent one is the default");
    }
}

// req: TUN-1
#[test]
fn operation_is_empty_known_or_refused() {
    assert_eq!(tunnel(&[bytes(6, "/v1/models")]).operation, None);
    for (text, operation) in [
        ("models", Operation::Models),
        ("chat_completions", Operation::ChatCompletions),
        ("messages", Operation::Messages),
        ("count_tokens", Operation::CountTokens),
        ("responses", Operation::Responses),
    ] {
        assert_eq!(tunnel(&[bytes(13, text), bytes(6, "/other")]).operation, Some(operation));
        assert_eq!((operation.as_str(), text.parse()), (text, Ok(operation)));
    }
    for text in ["Models", "models ", "embeddings", "chat/completions"] {
        assert_eq!(refused(TUNNEL_REQUEST, &[bytes(13, text)]), FieldError::InvalidOperation);
    }
}

// req: CRD-1
#[test]
fn half_a_credential_is_refused() {
    for (member, lease, binding) in [(TUNNEL_REQUEST, 16, 17), (RUN_REQUEST, 12, 13)] {
        for half in [lease, binding] {
            let error = of_run(member, &[bytes(half, [])]).unwrap_err();
            assert_eq!(error.refusal(), Some((3, ErrorKind::Credential)), "{error:?}");
        }
        assert!(of_run(member, &[bytes(lease, []), bytes(binding, [])]).is_ok());
    }
    for half in [6, 7] {
        let error = Message::decode(envelope(COMMAND_REQUEST, &[bytes(half, [])])).unwrap_err();
        assert_eq!(error, DecodeError::Field(FieldError::HalfCredential));
    }
}

// req: WIR-10
#[test]
fn message_of_a_run_without_a_stream_number_is_refused() {
    let body = [int(3, 2), bytes(4, "x")].concat();
    for (member, fields) in [
        (RUN_REQUEST, vec![]),
        (RUN_EVENT, int(3, 1)),
        (TUNNEL_REQUEST, vec![]),
        (TUNNEL_FRAME, body),
        (BODY_CHUNK, bytes(2, "x")),
        (CANCEL, vec![]),
        (CREDIT, int(2, 1)),
    ] {
        let error = Message::decode(envelope(member, std::slice::from_ref(&fields))).unwrap_err();
        assert_eq!(error, DecodeError::Field(FieldError::ZeroStream), "member {member}");
        let message = of_run(member, &[fields]).unwrap();
        assert_eq!(message.stream(), Some(3), "{}", message.name());
    }
}

#[test]
fn data_of_0_or_of_more_than_64_kib_is_refused() {
    let most = vec![0; CHUNK_BYTES_MAX];
    let over = vec![0; CHUNK_BYTES_MAX + 1];
    for data in [&[][..], &over] {
        let len = data.len();
        let chunk = refused(BODY_CHUNK, &[bytes(2, data)]);
        assert_eq!(chunk, FieldError::DataSize { field: "data", len });
        let frame = refused(TUNNEL_FRAME, &[int(3, 2), bytes(4, data)]);
        assert_eq!(frame, FieldError::DataSize { field: "body", len });
    }
    assert!(of_run(BODY_CHUNK, &[bytes(2, &most)]).is_ok());
    assert!(of_run(TUNNEL_FRAME, &[int(3, 2), bytes(4, &most)]).is_ok());
    let delta = refused(RUN_EVENT, &[int(3, 2), bytes(4, &over)]);
    assert_eq!(delta, FieldError::TooLong { field: "delta", len: 65_537, max: CHUNK_BYTES_MAX });
}

// req: WIR-9
#[test]
fn request_holds_at_most_64_kib_of_its_body_and_no_more_than_announced() {
    for (member, part, whole) in [(TUNNEL_REQUEST, 8, 9), (RUN_REQUEST, 5, 6)] {
        assert!(of_run(member, &[bytes(part, vec![0; INLINE_BODY_MAX]), int(whole, 1 << 20)]).is_ok());
        assert!(of_run(member, &[int(whole, 1 << 20)]).is_ok());
        let over = refused(member, &[bytes(part, vec![0; INLINE_BODY_MAX + 1]), int(whole, 1 << 20)]);
        assert_eq!(over, FieldError::InlineBody { inline: INLINE_BODY_MAX + 1, total: 1 << 20 });
        let more = refused(member, &[bytes(part, "abc"), int(whole, 2)]);
        assert_eq!(more, FieldError::InlineBody { inline: 3, total: 2 });
    }
}

#[test]
fn credit_of_nothing_is_refused() {
    assert_eq!(refused(CREDIT, &[]), FieldError::ZeroCredit);
    assert!(of_run(CREDIT, &[int(2, 1)]).is_ok());
}

#[test]
fn status_has_three_digits() {
    for good in [100, 200, 599, 999] {
        let Ok(Message::TunnelFrame(frame)) = of_run(TUNNEL_FRAME, &[int(3, 1), int(5, good)]) else {
            panic!("{good}")
        };
        assert!(
            matches!(frame.kind, TunnelFrameKind::ResponseStart { status, .. } if u64::from(status) == good)
        );
    }
    for bad in [0, 99, 1000, 65_736] {
        let error = refused(TUNNEL_FRAME, &[int(3, 1), int(5, bad)]);
        assert_eq!(
            u64::from(u32::MAX).min(bad),
            match error {
                FieldError::Status(status) => u64::from(status),
                other => panic!("{other:?}"),
            }
        );
    }
}

#[test]
fn header_is_a_lower_case_token_with_a_value_of_one_line() {
    let header = |name: &str, value: &[u8]| bytes(7, [bytes(1, name), bytes(2, value)].concat());
    let good = tunnel(&[header("x-a!#$%&'*+.^_`|~9", b"\xff \t;"), header("b", b"")]);
    assert_eq!(good.headers[0].value, &b"\xff \t;"[..]);
    for name in ["", "X-A", "a b", "a:", "a\r\nb", "\u{e4}", "a\0", "(a)"] {
        let error = refused(TUNNEL_REQUEST, &[header(name, b"v")]);
        assert_eq!(error, FieldError::Header(HeaderError::Name), "{name:?}");
    }
    for value in [&b"a\rb"[..], b"a\nb", b"\0", b"a\r\nx-injected: 1"] {
        let error = refused(TUNNEL_REQUEST, &[header("a", value)]);
        assert_eq!(error, FieldError::Header(HeaderError::Value), "{value:?}");
    }
    let response = refused(TUNNEL_FRAME, &[int(3, 1), int(5, 200), bytes(6, bytes(1, "A"))]);
    assert_eq!(response, FieldError::Header(HeaderError::Name));
    assert_eq!(Header::new("X-Mixed", "v").unwrap().name, "x-mixed");
    assert_eq!(Header::new("x", "a\nb"), Err(HeaderError::Value));
}

#[test]
fn lists_over_their_bounds_are_refused() {
    let many = |count: usize, field: Vec<u8>| vec![field; count];
    let header = bytes(7, bytes(1, "a"));
    assert_eq!(tunnel(&many(HEADERS_MAX, header.clone())).headers.len(), HEADERS_MAX);
    let error = of_run(TUNNEL_REQUEST, &many(HEADERS_MAX + 1, header)).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::TooMany { field: "headers", max: HEADERS_MAX }));

    let pair = |at: usize| bytes(12, [bytes(1, at.to_string()), bytes(2, "v")].concat());
    let pairs: Vec<Vec<u8>> = (0..=METADATA_PAIRS_MAX).map(pair).collect();
    assert_eq!(tunnel(&pairs[1..]).metadata.len(), METADATA_PAIRS_MAX);
    let error = of_run(TUNNEL_REQUEST, &pairs).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::TooMany { field: "metadata", max: METADATA_PAIRS_MAX }));

    let error = config(&many(ADAPTERS_MAX + 1, bytes(3, []))).unwrap_err();
    assert_eq!(
        error,
        DecodeError::Field(FieldError::TooMany { field: "config.adapters", max: ADAPTERS_MAX })
    );
    let error = config(&many(PROVIDERS_MAX + 1, bytes(4, []))).unwrap_err();
    assert_eq!(
        error,
        DecodeError::Field(FieldError::TooMany { field: "config.providers", max: PROVIDERS_MAX })
    );
    let pieces = many(REFRESH_PIECES_MAX + 1, bytes(5, []));
    let error = Message::decode(envelope(REFRESH_RESPONSE, &pieces)).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::TooMany { field: "pieces", max: REFRESH_PIECES_MAX }));
}

#[test]
fn lists_cannot_be_spread_over_several_copies_of_their_message() {
    let half = bytes(2, bytes(4, [bytes(1, "p")].concat()));
    let error = Message::decode(envelope(REFRESH_REQUEST, &[half.clone(), half])).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::TooMany { field: "config", max: 1 }));
}

#[test]
fn texts_over_their_bounds_are_refused() {
    let long = |len: usize| "x".repeat(len + 1);
    for (number, max, field) in [
        (2, ID_BYTES_MAX, "run_id"),
        (3, ID_BYTES_MAX, "adapter"),
        (4, TARGET_BYTES_MAX, "target"),
        (5, ID_BYTES_MAX, "method"),
        (6, PATH_BYTES_MAX, "path"),
        (14, SESSION_ID_BYTES_MAX, "session_id"),
    ] {
        let error = refused(TUNNEL_REQUEST, &[bytes(number, long(max))]);
        assert_eq!(error, FieldError::TooLong { field, len: max + 1, max });
        tunnel(&[bytes(number, "x".repeat(max))]);
    }
    let value = bytes(12, [bytes(1, "k"), bytes(2, long(METADATA_VALUE_BYTES_MAX))].concat());
    assert!(matches!(refused(TUNNEL_REQUEST, &[value]), FieldError::TooLong { field: "metadata", .. }));
    let value = bytes(7, [bytes(1, "k"), bytes(2, long(HEADERS_BYTES_MAX))].concat());
    assert!(matches!(refused(TUNNEL_REQUEST, &[value]), FieldError::TooLong { field: "headers", .. }));
    let register = [bytes(1, "n"), bytes(3, long(TOKEN_BYTES_MAX))];
    let error = Message::decode(envelope(REGISTER_REQUEST, &register)).unwrap_err();
    assert!(matches!(error, DecodeError::Field(FieldError::TooLong { field: "token", .. })));
    let lease = [bytes(16, bytes(5, long(LEASE_PART_BYTES_MAX))), bytes(17, [])];
    assert!(matches!(refused(TUNNEL_REQUEST, &lease), FieldError::TooLong { .. }));
}

#[test]
fn long_text_for_people_is_cut_and_does_not_cost_its_connection() {
    let reason = "\u{e9}".repeat(TEXT_BYTES_MAX);
    let mut out = Vec::new();
    let result = Err(format!("x{reason}"));
    Message::NodeCommandResponse(NodeCommandResponse { request_id: 1, result }).encode(&mut out);
    let Ok(Message::NodeCommandResponse(NodeCommandResponse { result: Err(error), .. })) =
        Message::decode(Bytes::from(out).slice(4..))
    else {
        panic!("no response");
    };
    assert_eq!(error.len(), TEXT_BYTES_MAX - 1, "cut between two characters");
    assert!(reason.contains(error.trim_start_matches('x')));
}

#[test]
fn error_kind_of_a_newer_build_is_unknown() {
    for number in [0, 12, 1000, u64::MAX] {
        let Ok(Message::TunnelFrame(frame)) = of_run(TUNNEL_FRAME, &[int(3, 5), int(9, number)]) else {
            panic!("frame")
        };
        assert!(matches!(frame.kind, TunnelFrameKind::Error(error) if error.kind == ErrorKind::Unknown));
        let Ok(Message::RunEvent(event)) = of_run(RUN_EVENT, &[int(3, 4), int(11, number)]) else {
            panic!("event")
        };
        assert!(matches!(event.kind, RunEventKind::Error(error) if error.kind == ErrorKind::Unknown));
    }
}

#[test]
fn kind_of_frame_event_or_outcome_outside_its_set_is_refused() {
    for number in [0, 6, 99] {
        let error = refused(TUNNEL_FRAME, &[int(3, number)]);
        assert_eq!(
            error,
            FieldError::UnknownValue { field: "provider_tunnel_frame.kind", value: number as i32 }
        );
    }
    assert!(matches!(
        refused(RUN_EVENT, &[int(3, 7)]),
        FieldError::UnknownValue { field: "run_event.type", value: 7 }
    ));
    let error = Message::decode(envelope(REFRESH_RESPONSE, &[int(3, 4)])).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::UnknownValue { field: "outcome", value: 4 }));
    let error = of_run(TUNNEL_FRAME, &[int(3, 6)]).unwrap_err();
    assert_eq!(error.refusal(), None, "only a request can be refused");
}

#[test]
fn registration_names_are_workload_names_and_acceptance_has_a_configuration() {
    for name in ["", "Node", "a b", "-a"] {
        let error = Message::decode(envelope(REGISTER_REQUEST, &[bytes(1, name)])).unwrap_err();
        assert!(matches!(error, DecodeError::Field(FieldError::Name { field: "node_id", .. })), "{name:?}");
    }
    let accepted = [int(1, 1), bytes(3, "n1"), bytes(4, [])];
    assert!(Message::decode(envelope(REGISTER_RESPONSE, &accepted)).is_ok());
    let error = Message::decode(envelope(REGISTER_RESPONSE, &accepted[..2])).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::Missing { field: "config" }));
    let rejected = Message::decode(envelope(REGISTER_RESPONSE, &[bytes(2, "name taken")]));
    let reason = "name taken".to_owned();
    assert_eq!(rejected, Ok(Message::RegisterResponse(RegisterResponse::Rejected { reason })));
}

fn adapter(name: &str, kind: &str, settings: Option<u32>) -> Vec<u8> {
    let settings = settings.map(|number| bytes(number, [])).unwrap_or_default();
    bytes(3, [bytes(1, name), bytes(2, kind), settings].concat())
}

#[test]
fn adapter_has_the_settings_of_its_type() {
    for (kind, number) in [("openai_compat", 10), ("vllm", 10), ("ollama", 11), ("cli", 12)] {
        assert_eq!(config(&[adapter("a", kind, Some(number))]).unwrap().adapters.len(), 1, "{kind}");
        for wrong in [None, Some(10), Some(11), Some(12)].into_iter().filter(|other| *other != Some(number)) {
            let error = config(&[adapter("a", kind, wrong)]).unwrap_err();
            assert_eq!(error, DecodeError::Field(FieldError::AdapterSettings), "{kind} with {wrong:?}");
        }
    }
    let newer = config(&[adapter("a", "grpc", None)]).unwrap();
    let settings = AdapterSettings::Unknown("grpc".to_owned());
    assert_eq!(
        newer.adapters,
        [AdapterConfig { name: "a".to_owned(), enabled: false, capacity: 0, settings }]
    );
}

// req: CFG-12
#[test]
fn adapter_names_are_unique_and_empty_ones_are_the_legacy_instances() {
    let twice = [adapter("a", "ollama", Some(11)), adapter("a", "cli", Some(12))];
    let error = config(&twice).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::Duplicate { field: "config.adapters.name" }));
    let legacy = [adapter("", "ollama", Some(11)), adapter("", "cli", Some(12))];
    assert_eq!(config(&legacy).unwrap().adapters.len(), 2);
    let legacy = [adapter("", "ollama", Some(11)), adapter("", "ollama", Some(11))];
    let error = config(&legacy).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::Duplicate { field: "config.adapters.name" }));
}

#[test]
fn provider_has_a_unique_id_and_possible_timeouts() {
    let provider = |id: &str, timeout: i64| bytes(4, [bytes(1, id), int(7, timeout as u64)].concat());
    assert_eq!(config(&[provider("p", 0), provider("q", 5)]).unwrap().providers.len(), 2);
    let error = config(&[provider("p", 0), provider("p", 5)]).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::Duplicate { field: "config.providers.id" }));
    let error = config(&[provider("", 0)]).unwrap_err();
    assert_eq!(error, DecodeError::Field(FieldError::Missing { field: "config.providers.id" }));
    for value in [-1, TIMEOUT_MS_MAX + 1] {
        let error = config(&[provider("p", value)]).unwrap_err();
        assert!(matches!(error, DecodeError::Field(FieldError::Timeout { .. })), "{value}");
    }
}

#[test]
fn operation_of_a_newer_profile_is_left_out() {
    let operation = |name: &str| bytes(4, [bytes(1, name), bytes(3, "http://127.0.0.1/")].concat());
    let profile = bytes(2, [operation("embeddings"), operation("models")].concat());
    let settings = bytes(10, profile);
    let adapter = bytes(3, [bytes(1, "a"), bytes(2, "openai_compat"), settings].concat());
    let decoded = config(&[adapter]).unwrap();
    let AdapterSettings::OpenAiCompat(settings) = &decoded.adapters[0].settings else {
        panic!("{decoded:?}")
    };
    let operations: Vec<Operation> =
        settings.profile.operations.iter().map(|entry| entry.operation).collect();
    assert_eq!(operations, [Operation::Models]);
}

#[test]
fn result_of_a_command_is_bounded_as_a_whole() {
    let result = |len: usize| {
        let pair = bytes(4, [bytes(1, "k"), bytes(2, "v".repeat(len - 1))].concat());
        Message::decode(envelope(COMMAND_RESPONSE, &[int(1, 1), int(2, 1), pair]))
    };
    assert!(result(RESULT_BYTES_MAX).is_ok());
    let error = result(RESULT_BYTES_MAX + 1).unwrap_err();
    assert!(matches!(error, DecodeError::Field(FieldError::TooLong { field: "result", .. })));
}

#[test]
fn secrets_stand_in_no_debug_output() {
    let register =
        Message::decode(envelope(REGISTER_REQUEST, &[bytes(1, "n"), bytes(3, "sentinel")])).unwrap();
    let header = bytes(7, [bytes(1, "authorization"), bytes(2, "Bearer sentinel")].concat());
    for message in [register, Message::TunnelRequest(Box::new(tunnel(&[header])))] {
        let text = format!("{message:?}");
        assert!(!text.contains("sentinel"), "{text}");
    }
}

// req: RUN-3
#[test]
fn tool_calls_have_a_bound_of_their_own_and_only_in_a_completion() {
    const COMPLETE: u64 = 3;
    const DELTA: u64 = 2;
    let event = |kind: u64, key: &str, len: usize| {
        let pair = bytes(9, [bytes(1, key), bytes(2, "x".repeat(len))].concat());
        of_run(RUN_EVENT, &[int(3, kind), pair])
    };
    let at_most = TOOL_CALLS_BYTES_MAX;
    assert!(event(COMPLETE, TOOL_CALLS_KEY, at_most).is_ok());
    for (kind, key, len, max) in [
        (COMPLETE, TOOL_CALLS_KEY, at_most + 1, at_most),
        (COMPLETE, TEXT_TOOL_FALLBACK_KEY, METADATA_VALUE_BYTES_MAX + 1, METADATA_VALUE_BYTES_MAX),
        (DELTA, TOOL_CALLS_KEY, METADATA_VALUE_BYTES_MAX + 1, METADATA_VALUE_BYTES_MAX),
    ] {
        let Err(DecodeError::Run { error, .. }) = event(kind, key, len) else {
            panic!("taken: {key} of {len}")
        };
        assert_eq!(error, FieldError::TooLong { field: "metadata", len, max });
    }
}
