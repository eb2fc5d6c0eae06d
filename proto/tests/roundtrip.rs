//! Every message survives its own encoding, and no bytes make the decoder panic.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use iop_proto::{frame::Decoder, identity::Name, limits::TIMEOUT_MS_MAX, message::*};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
};

fn name() -> impl Strategy<Value = Name> {
    "[a-z0-9][a-z0-9._-]{0,20}".prop_map(|text| text.parse().expect("the pattern gives names"))
}

fn word() -> impl Strategy<Value = String> {
    "\\PC{0,12}"
}

fn data(len: std::ops::Range<usize>) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), len).prop_map(Bytes::from)
}

fn pairs() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(word(), word(), 0..4)
}

fn stream() -> impl Strategy<Value = StreamNo> {
    1..=u64::MAX
}

fn headers() -> impl Strategy<Value = Vec<Header>> {
    let header = ("[a-z0-9-]{1,12}", "[ -~]{0,20}");
    vec(header.prop_map(|(name, value)| Header::new(name, value).expect("the pattern gives headers")), 0..4)
}

fn usage() -> impl Strategy<Value = Usage> {
    let count = || option::of(any::<u64>());
    (count(), count(), count(), count()).prop_map(
        |(input_tokens, output_tokens, cached_input_tokens, reasoning_tokens)| Usage {
            input_tokens,
            output_tokens,
            cached_input_tokens,
            reasoning_tokens,
        },
    )
}

fn error() -> impl Strategy<Value = ExecutionError> {
    let kind = prop::sample::select(vec![
        ErrorKind::Busy,
        ErrorKind::Cancelled,
        ErrorKind::Deadline,
        ErrorKind::Connect,
        ErrorKind::UpstreamProtocol,
        ErrorKind::UpstreamTruncated,
        ErrorKind::InvalidRequest,
        ErrorKind::Credential,
        ErrorKind::Stalled,
        ErrorKind::Internal,
        ErrorKind::CreditExceeded,
        ErrorKind::Unknown,
    ]);
    let failure = (word(), any::<bool>(), pairs()).prop_map(|(failure_code, retryable, metadata)| {
        ExecutionFailure { failure_code, retryable, metadata }
    });
    (kind, word(), option::of(failure)).prop_map(|(kind, message, failure)| ExecutionError {
        kind,
        message,
        failure,
    })
}

fn credential() -> impl Strategy<Value = Option<Credential>> {
    let lease = (any::<u32>(), vec(data(0..20), 5)).prop_map(|(version, parts)| CredentialLease {
        version,
        issuer_key_id: parts[0].clone(),
        scope: parts[1].clone(),
        encapsulated_key: parts[2].clone(),
        ciphertext: parts[3].clone(),
        signature: parts[4].clone(),
    });
    let binding = (vec(word(), 7), any::<[u64; 3]>()).prop_map(|(texts, numbers)| CredentialLeaseBinding {
        principal_ref: texts[0].clone(),
        slot: texts[1].clone(),
        route: texts[2].clone(),
        profile: texts[3].clone(),
        upstream_target: texts[4].clone(),
        node_id: texts[5].clone(),
        recipient: texts[6].clone(),
        credential_revision: numbers[0],
        route_revision: numbers[1],
        projection_generation: numbers[2],
    });
    option::of((lease, binding).prop_map(|(lease, binding)| Credential { lease, binding }))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop::sample::select(Operation::ALL.to_vec())
}

fn settings() -> impl Strategy<Value = AdapterSettings> {
    let entry = (operation(), word(), word());
    let profile = (vec(word(), 3), btree_map(operation(), entry, 0..5), vec(word(), 0..3)).prop_map(
        |(texts, operations, capabilities)| ProtocolProfile {
            id: texts[0].clone(),
            driver: texts[1].clone(),
            base_url: texts[2].clone(),
            operations: operations
                .into_iter()
                .map(|(operation, (_, method, url))| ProfileOperation { operation, method, url })
                .collect(),
            capabilities,
        },
    );
    let openai = (word(), profile, headers()).prop_map(|(provider_label, profile, headers)| {
        AdapterSettings::OpenAiCompat(OpenAiCompatConfig { provider_label, profile, headers })
    });
    let ollama = (word(), any::<u32>()).prop_map(|(base_url, context_size)| {
        AdapterSettings::Ollama(OllamaConfig { base_url, context_size })
    });
    let cli = (word(), vec(word(), 0..3), pairs(), word(), word()).prop_map(
        |(command, args, env, mode, output_format)| {
            AdapterSettings::Cli(CliConfig { command, args, env, mode, output_format })
        },
    );
    prop_oneof![openai, ollama, cli, "[A-Z]{1,8}".prop_map(AdapterSettings::Unknown)]
}

fn health() -> impl Strategy<Value = HealthCheck> {
    (word(), any::<bool>()).prop_map(|(path, generation)| HealthCheck { path, generation })
}

fn config() -> impl Strategy<Value = NodeConfigPayload> {
    let adapters =
        btree_map("[a-z]{1,6}", (any::<bool>(), any::<u32>(), settings()), 0..4).prop_map(|adapters| {
            let adapter =
                |(name, (enabled, capacity, settings))| AdapterConfig { name, enabled, capacity, settings };
            adapters.into_iter().map(adapter).collect::<Vec<_>>()
        });
    let provider = (
        word(),
        word(),
        vec(word(), 0..3),
        any::<(bool, u32)>(),
        [0..=TIMEOUT_MS_MAX, 0..=TIMEOUT_MS_MAX],
        health(),
    );
    let providers = btree_map("[a-z]{1,6}", provider, 0..4).prop_map(|providers| {
        let provider = |(id, (adapter, category, models, (enabled, capacity), timeouts, health)): (
            _,
            (_, _, _, _, [i64; 2], _),
        )| {
            ProviderConfig {
                id,
                adapter,
                category,
                models,
                enabled,
                capacity,
                response_stall_timeout_ms: timeouts[0],
                request_timeout_ms: timeouts[1],
                health,
            }
        };
        providers.into_iter().map(provider).collect::<Vec<_>>()
    });
    (any::<(u64, u32)>(), adapters, providers).prop_map(
        |((config_generation, concurrency), adapters, providers)| NodeConfigPayload {
            config_generation,
            concurrency,
            adapters,
            providers,
        },
    )
}

fn run_request() -> impl Strategy<Value = Message> {
    let numbers = (stream(), any::<(u32, u32)>(), 1..=TIMEOUT_MS_MAX, 0_u64..1 << 40);
    (numbers, vec(word(), 4), data(0..300), pairs(), credential()).prop_map(
        |((stream, (timeout_sec, window_bytes), stall, rest), texts, input, metadata, credential)| {
            Message::RunRequest(Box::new(RunRequest {
                stream,
                run_id: texts[0].clone(),
                adapter: texts[1].clone(),
                target: texts[2].clone(),
                input_bytes: input.len() as u64 + rest,
                input,
                metadata,
                session_id: texts[3].clone(),
                timeout_sec,
                response_stall_timeout_ms: stall,
                window_bytes,
                credential,
            }))
        },
    )
}

fn tunnel_request() -> impl Strategy<Value = Message> {
    let numbers = (stream(), any::<(u32, u32, bool)>(), 1..=TIMEOUT_MS_MAX, 0_u64..1 << 40);
    let parts = (data(0..300), pairs(), headers(), option::of(operation()), (credential(), headers()));
    (numbers, vec(word(), 6), parts).prop_map(|(numbers, texts, parts)| {
        let (stream, (timeout_sec, window_bytes, stream_response), stall, rest) = numbers;
        let (body, metadata, headers, operation, (credential, mut auth)) = parts;
        Message::TunnelRequest(Box::new(TunnelRequest {
            stream,
            run_id: texts[0].clone(),
            adapter: texts[1].clone(),
            target: texts[2].clone(),
            method: texts[3].clone(),
            path: texts[4].clone(),
            headers,
            body_bytes: body.len() as u64 + rest,
            body,
            stream_response,
            timeout_sec,
            metadata,
            operation,
            session_id: texts[5].clone(),
            response_stall_timeout_ms: stall,
            window_bytes,
            credential,
            provider_auth: auth.pop(),
        }))
    })
}

fn run_event() -> impl Strategy<Value = Message> {
    let kind = prop_oneof![
        Just(RunEventKind::Start),
        (word(), word()).prop_map(|(text, reasoning)| RunEventKind::Delta { text, reasoning }),
        usage().prop_map(RunEventKind::Usage),
        (word(), option::of(usage()))
            .prop_map(|(finish_reason, usage)| RunEventKind::Complete { finish_reason, usage }),
        error().prop_map(RunEventKind::Error),
        Just(RunEventKind::Cancelled),
    ];
    (stream(), any::<u64>(), kind, word(), pairs()).prop_map(|(stream, sequence, kind, run_id, metadata)| {
        Message::RunEvent(RunEvent { stream, sequence, kind, run_id, metadata })
    })
}

fn tunnel_frame() -> impl Strategy<Value = Message> {
    let kind = prop_oneof![
        (100_u16..=999, headers(), any::<bool>()).prop_map(|(status, headers, until_close)| {
            TunnelFrameKind::ResponseStart { status, headers, until_close }
        }),
        data(1..300).prop_map(TunnelFrameKind::Body),
        usage().prop_map(TunnelFrameKind::Usage),
        Just(TunnelFrameKind::End),
        error().prop_map(TunnelFrameKind::Error),
    ];
    (stream(), any::<u64>(), kind)
        .prop_map(|(stream, sequence, kind)| Message::TunnelFrame(TunnelFrame { stream, sequence, kind }))
}

fn refresh_response() -> impl Strategy<Value = Message> {
    let outcome = || {
        prop::sample::select(vec![
            RefreshOutcome::Applied,
            RefreshOutcome::RestartRequired,
            RefreshOutcome::Failed,
        ])
    };
    let piece = (word(), outcome(), word()).prop_map(|(path, outcome, reason)| RefreshPiece {
        path,
        outcome,
        reason,
    });
    (any::<(u64, u64)>(), outcome(), word(), vec(piece, 0..4)).prop_map(
        |((request_id, config_generation), outcome, reason, pieces)| {
            Message::NodeConfigRefreshResponse(NodeConfigRefreshResponse {
                request_id,
                config_generation,
                outcome,
                reason,
                pieces,
            })
        },
    )
}

fn command_request() -> impl Strategy<Value = Message> {
    (any::<u64>(), vec(word(), 3), pairs(), credential()).prop_map(
        |(request_id, texts, arguments, credential)| {
            Message::NodeCommandRequest(Box::new(NodeCommandRequest {
                request_id,
                command: texts[0].clone(),
                adapter: texts[1].clone(),
                target: texts[2].clone(),
                arguments,
                credential,
            }))
        },
    )
}

fn registration() -> impl Strategy<Value = Message> {
    prop_oneof![
        (name(), word(), word()).prop_map(|(node_id, agent_version, token)| {
            Message::RegisterRequest(RegisterRequest { node_id, agent_version, token })
        }),
        (name(), config()).prop_map(|(node_id, config)| {
            Message::RegisterResponse(RegisterResponse::Accepted { node_id, config })
        }),
        word().prop_map(|reason| Message::RegisterResponse(RegisterResponse::Rejected { reason })),
        name().prop_map(|node_id| Message::NodeReadyRequest(NodeReadyRequest { node_id })),
        (any::<bool>(), word())
            .prop_map(|(ready, reason)| Message::NodeReadyResponse(NodeReadyResponse { ready, reason })),
        (any::<u64>(), config()).prop_map(|(request_id, config)| {
            Message::NodeConfigRefreshRequest(NodeConfigRefreshRequest { request_id, config })
        }),
        refresh_response(),
    ]
}

fn small() -> impl Strategy<Value = Message> {
    prop_oneof![
        (stream(), data(1..300), any::<bool>())
            .prop_map(|(stream, data, last)| Message::BodyChunk(BodyChunk { stream, data, last })),
        (stream(), word()).prop_map(|(stream, run_id)| Message::Cancel(Cancel { stream, run_id })),
        (any::<u64>(), prop_oneof![pairs().prop_map(Ok), word().prop_map(Err)]).prop_map(
            |(request_id, result)| {
                Message::NodeCommandResponse(NodeCommandResponse { request_id, result })
            }
        ),
        (stream(), 1..=u32::MAX).prop_map(|(stream, bytes)| Message::Credit(Credit { stream, bytes })),
        Just(Message::NodeDraining),
        Just(Message::HeartbeatPing),
        Just(Message::HeartbeatPong),
        word().prop_map(|reason| Message::Goodbye(Goodbye { reason })),
        Just(Message::Unknown),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        registration(),
        run_request(),
        tunnel_request(),
        run_event(),
        tunnel_frame(),
        command_request(),
        small(),
    ]
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

proptest! {
    // req: TUN-1
    #[test]
    fn every_message_survives_its_encoding(message in message()) {
        prop_assert_eq!(message.validate(), Ok(()));
        let bytes = encoded(&message);
        prop_assert_eq!(bytes.len(), message.encoded_len());
        let mut buf = BytesMut::from(&bytes[..]);
        let frame = Decoder::default().next(&mut buf).unwrap().unwrap();
        prop_assert!(buf.is_empty());
        prop_assert_eq!(Message::decode(frame), Ok(message));
    }

    #[test]
    fn encoding_appends(messages in vec(message(), 0..5)) {
        let mut together = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut together));
        let apart: Vec<u8> = messages.iter().flat_map(encoded).collect();
        prop_assert_eq!(together, apart);
    }

    #[test]
    fn changed_bytes_never_panic_and_what_is_accepted_is_valid(
        message in message(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&message)[4..].to_vec();
        if !bytes.is_empty() {
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            if cut.index(4) == 0 {
                bytes.truncate(cut.index(bytes.len()));
            }
        }
        if let Ok(message) = Message::decode(Bytes::from(bytes)) {
            prop_assert_eq!(message.validate(), Ok(()));
            let again = Message::decode(Bytes::from(encoded(&message)).slice(4..));
            prop_assert_eq!(again, Ok(message));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Message::decode(Bytes::from(bytes.clone()));
        let mut buf = BytesMut::from(&bytes[..]);
        let mut decoder = Decoder::new(64);
        while let Ok(Some(frame)) = decoder.next(&mut buf) {
            prop_assert!(frame.len() <= 64);
        }
    }
}
