use std::{cell::Cell, io::Write as _, rc::Rc, sync::mpsc};

use bytes::Bytes;
use flate2::{Compression, write};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;
use crate::{
    local::Latch,
    shard::{DriverWish, Shard, ShardSpec, spawn_guarded},
};

const MAX: usize = 32 * 1024 * 1024;

/// The ways to send a body: a coding, and by which wrapping.
const WAYS: [(Coding, Way); 5] = [
    (Coding::Gzip, Way::Gzip),
    (Coding::Deflate, Way::Zlib),
    (Coding::Deflate, Way::Raw),
    (Coding::Brotli, Way::Brotli),
    (Coding::Zstd, Way::Zstd),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Gzip,
    Zlib,
    Raw,
    Brotli,
    Zstd,
}

fn encoded(way: Way, text: &[u8]) -> Vec<u8> {
    let level = Compression::default();
    match way {
        Way::Gzip => {
            let mut out = write::GzEncoder::new(Vec::new(), level);
            out.write_all(text).unwrap();
            out.finish().unwrap()
        }
        Way::Zlib => {
            let mut out = write::ZlibEncoder::new(Vec::new(), level);
            out.write_all(text).unwrap();
            out.finish().unwrap()
        }
        Way::Raw => {
            let mut out = write::DeflateEncoder::new(Vec::new(), level);
            out.write_all(text).unwrap();
            out.finish().unwrap()
        }
        Way::Brotli => {
            let mut out = ::brotli::CompressorWriter::new(Vec::new(), 4096, 5, 22);
            out.write_all(text).unwrap();
            out.into_inner()
        }
        Way::Zstd => compress_to_vec(text, CompressionLevel::Fastest),
    }
}

fn pieces(bytes: &[u8], size: usize) -> Body {
    bytes.chunks(size.max(1)).map(Bytes::copy_from_slice).collect()
}

/// All steps: what came of it, and how many there were.
fn steps(coding: Coding, body: Body, max: usize, budget: &Budget) -> (Result<Body, DecodeFault>, usize) {
    let mut decoder = match Decoder::new(coding, body, max, budget) {
        Ok(decoder) => decoder,
        Err(fault) => return (Err(fault), 0),
    };
    for count in 1.. {
        let before = decoder.body.len() + decoder.filling.as_ref().map_or(0, Piece::len);
        match decoder.step() {
            Ok(None) => {
                let after = decoder.body.len() + decoder.filling.as_ref().map_or(0, Piece::len);
                assert!(after - before <= STEP_OUT);
            }
            Ok(Some(body)) => return (Ok(body), count),
            Err(fault) => return (Err(fault), count),
        }
    }
    unreachable!("a body ends")
}

fn decoded(coding: Coding, bytes: &[u8], size: usize) -> Result<Bytes, DecodeFault> {
    let budget = Budget::new(1 << 30);
    let out = steps(coding, pieces(bytes, size), MAX, &budget).0.map(|body| body.joined());
    assert!(out.is_ok() || budget.held() == 0);
    out
}

/// Text that compresses about as JSON does.
fn text(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut out = Vec::with_capacity(len + 40);
    while out.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        out.extend_from_slice(format!("{{\"role\":\"user\",\"content\":\"{state:x}\"}},").as_bytes());
    }
    out.truncate(len);
    out
}

#[test]
fn every_coding_gives_the_body_however_it_arrives() {
    for (coding, way) in WAYS {
        for len in [0, 1, 2, 100, 5000, 70_000, 700_000] {
            let body = text(len);
            let sent = encoded(way, &body);
            for size in [1, 2, 7, 4095, 4096, 4097, sent.len()] {
                if len > 70_000 && size < 4095 {
                    continue;
                }
                let got = decoded(coding, &sent, size);
                assert_eq!(got.as_deref(), Ok(&*body), "{way:?} of {len} by {size}");
            }
        }
    }
}

#[test]
fn a_body_that_is_cut_anywhere_or_goes_on_is_refused() {
    for (coding, way) in WAYS {
        for len in [0, 1, 300, 3000] {
            let sent = encoded(way, &text(len));
            for cut in 0..sent.len() {
                let got = decoded(coding, &sent[..cut], 64);
                assert_eq!(got, Err(DecodeFault::Truncated), "{way:?} of {len} cut at {cut}");
            }
            for more in [0, b'\n', b'a'] {
                let got = decoded(coding, &[&sent[..], &[more]].concat(), 64);
                assert_eq!(got, Err(DecodeFault::Trailing), "{way:?} of {len} and {more}");
            }
            let twice = decoded(coding, &[&sent[..], &sent[..]].concat(), 64);
            assert_eq!(twice, Err(DecodeFault::Trailing), "{way:?} twice");
        }
    }
}

#[test]
fn damage_is_found_where_the_coding_has_a_checksum_and_never_does_harm() {
    let body = text(2000);
    for (coding, way) in WAYS {
        let sent = encoded(way, &body);
        for at in 0..sent.len() * 8 {
            let mut damaged = sent.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            let got = decoded(coding, &damaged, 100);
            // What of a gzip header says nothing of the content may change; brotli and bare deflate have no checksum.
            let checked = !matches!(way, Way::Brotli | Way::Raw);
            assert!(!checked || got.as_deref().map_or(true, |got| *got == *body), "{way:?} bit {at}");
        }
    }
}

// req: TUN-5
#[test]
fn a_bomb_of_any_coding_is_given_up_early_and_takes_little_memory() {
    let zeros = vec![b' '; 64 << 20];
    for (coding, way) in WAYS {
        let sent = encoded(way, &zeros);
        assert!(sent.len() * RATIO_MAX < MAX, "{way:?}: {} bytes", sent.len());
        let budget = Budget::new(1 << 30);
        let mut decoder = Decoder::new(coding, pieces(&sent, 4096), MAX, &budget).unwrap();
        let mut peak = 0;
        let fault = loop {
            match decoder.step() {
                Ok(step) => assert_eq!(step.map(|body| body.len()), None),
                Err(fault) => break fault,
            }
            peak = peak.max(budget.held());
        };
        assert_eq!(fault, DecodeFault::Expands, "{way:?}");
        let most = 4 * RATIO_FLOOR.max(sent.len() * RATIO_MAX);
        assert!(peak <= most as u64, "{way:?}: {peak} of {most}");
        drop(decoder);
        assert_eq!(budget.held(), 0);
        // The caller's limit, where it is the lower one.
        let (got, _) = steps(coding, pieces(&sent, 4096), 100_000, &budget);
        assert_eq!(got.map(|body| body.len()), Err(DecodeFault::TooLarge), "{way:?}");
    }
}

#[test]
fn a_body_may_be_just_as_long_as_the_limit() {
    let body = text(100_000);
    let budget = Budget::new(1 << 30);
    for (coding, way) in WAYS {
        let sent = encoded(way, &body);
        let (got, _) = steps(coding, pieces(&sent, 1000), body.len(), &budget);
        assert_eq!(got.map(|body| body.len()), Ok(body.len()), "{way:?}");
        let (got, _) = steps(coding, pieces(&sent, 1000), body.len() - 1, &budget);
        assert_eq!(got.map(|body| body.len()), Err(DecodeFault::TooLarge), "{way:?}");
    }
}

#[test]
fn what_is_decoded_takes_its_room_from_the_budget_and_gives_it_back() {
    let body = text(600_000);
    for (coding, way) in WAYS {
        let sent = encoded(way, &body);
        let budget = Budget::new(1 << 30);
        let (got, _) = steps(coding, pieces(&sent, 1000), MAX, &budget);
        let got = got.unwrap();
        assert!((600_000..1_300_000).contains(&budget.held()), "{way:?}: {}", budget.held());
        drop(got);
        assert_eq!(budget.held(), 0);
        let small = Budget::new(500_000);
        let (got, _) = steps(coding, pieces(&sent, 1000), MAX, &small);
        assert_eq!(got.map(|body| body.len()), Err(DecodeFault::NoRoom), "{way:?}");
        assert_eq!(small.held(), 0);
    }
}

/// Blocks that hold nothing: much input of which no output comes.
#[test]
fn a_step_is_short_also_where_nothing_comes_of_the_bytes() {
    let empty_stored = [0, 0, 0, 0xff, 0xff];
    let raw: Vec<u8> = empty_stored.iter().copied().cycle().take(5 * 200_000).collect();
    let mut zstd = MAGIC_AND_WINDOW.to_vec();
    zstd.extend([0, 0, 0].iter().cycle().take(3 * 200_000));
    for (coding, sent) in [(Coding::Deflate, raw), (Coding::Zstd, zstd)] {
        let (got, count) = steps(coding, pieces(&sent, 64 * 1024), MAX, &Budget::new(1 << 30));
        assert_eq!(got.map(|body| body.len()), Err(DecodeFault::Truncated), "{coding:?}");
        assert!(count >= sent.len() / (STEP_IN + 4), "{coding:?}: {count} steps");
    }
}

/// A frame of zstd with a window of 1 KiB and no checksum, up to its first block.
const MAGIC_AND_WINDOW: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0, 0];

#[test]
fn what_a_decoder_need_not_have_is_refused() {
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    let last_empty = [1, 0, 0];
    let zstd = |head: &[u8]| decoded(Coding::Zstd, &[&magic[..], head, &last_empty].concat(), 3);
    // Windows: 1 KiB, 8 MiB, and the next one above it.
    assert_eq!(zstd(&[0, 0]).as_deref(), Ok(&b""[..]));
    assert_eq!(zstd(&[0, 13 << 3]).as_deref(), Ok(&b""[..]));
    assert_eq!(zstd(&[0, 13 << 3 | 1]), Err(DecodeFault::Unusual));
    assert_eq!(zstd(&[0, 0xff]), Err(DecodeFault::Unusual));
    // A single segment of 1 GiB, and one of 2^64 - 1.
    assert_eq!(zstd(&[0xa0, 0, 0, 0, 0x40]), Err(DecodeFault::Unusual));
    assert_eq!(zstd(&[0xe0, 255, 255, 255, 255, 255, 255, 255, 255]), Err(DecodeFault::Unusual));
    // A dictionary.
    assert_eq!(zstd(&[1, 0, 7]), Err(DecodeFault::Unusual));
    // A skippable frame.
    assert_eq!(decoded(Coding::Zstd, &[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0], 8), Err(DecodeFault::Corrupt));
    // Brotli's large window.
    assert_eq!(decoded(Coding::Brotli, &[0x11, 0x1e, 0], 3), Err(DecodeFault::Unusual));
    // zlib's preset dictionary.
    assert_eq!(decoded(Coding::Deflate, &[0x78, 0xbb, 0, 0, 0, 1, 3, 0], 8), Err(DecodeFault::Corrupt));
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
        assert_eq!(decoded(coding, b"", 1), Err(DecodeFault::Truncated), "{coding:?}");
        assert!(decoded(coding, b"{\"model\":\"m\",\"messages\":[]}", 30).is_err(), "{coding:?}");
    }
}

#[test]
fn a_gzip_header_may_say_more_than_clients_do() {
    let plain = encoded(Way::Gzip, b"{}");
    let (head, rest) = plain.split_at(10);
    let with = |flags: u8, fields: &[u8]| {
        let mut head = head.to_vec();
        head[3] = flags;
        decoded(Coding::Gzip, &[&head[..], fields, rest].concat(), 5)
    };
    let all = b"\x03\0abcname\0comment\0\x12\x34";
    assert_eq!(with(0b11110, all).as_deref(), Ok(&b"{}"[..]));
    assert_eq!(with(0b00001, b"").as_deref(), Ok(&b"{}"[..]), "a text");
    assert_eq!(with(0b00100, b"\0\0").as_deref(), Ok(&b"{}"[..]));
    assert_eq!(with(0b01000, b"\0").as_deref(), Ok(&b"{}"[..]));
    assert_eq!(with(0b100_0000, b""), Err(DecodeFault::Corrupt), "a reserved flag");
    assert_eq!(with(0b01000, &[b'x'; 70_000]), Err(DecodeFault::Unusual));
}

#[test]
fn one_coding_is_taken_by_its_name_and_everything_else_is_not_understood() {
    let of = |value: &str| {
        let mut headers = Headers::new();
        headers.push("content-encoding", value).unwrap();
        Coding::of(&headers)
    };
    assert_eq!(Coding::of(&Headers::new()), Ok(None));
    for (value, expected) in [
        ("", Ok(None)),
        ("identity", Ok(None)),
        ("Identity", Ok(None)),
        ("gzip", Ok(Some(Coding::Gzip))),
        ("X-GZip", Ok(Some(Coding::Gzip))),
        ("deflate", Ok(Some(Coding::Deflate))),
        ("BR", Ok(Some(Coding::Brotli))),
        ("zstd", Ok(Some(Coding::Zstd))),
        (" , gzip ,, identity", Ok(Some(Coding::Gzip))),
        ("gzip, br", Err(Unsupported)),
        ("gzip, gzip", Err(Unsupported)),
        ("compress", Err(Unsupported)),
        ("gzip;q=1", Err(Unsupported)),
        ("aws-chunked", Err(Unsupported)),
    ] {
        assert_eq!(of(value), expected, "{value:?}");
    }
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
        assert_eq!(of(coding.name()), Ok(Some(coding)));
        assert!(UNDERSTOOD.split(", ").any(|name| name == coding.name()));
    }
}

#[test]
fn others_have_their_turn_between_the_steps_of_a_large_body() {
    let (tell, told) = mpsc::channel();
    let spec = ShardSpec { name: "test".to_owned(), cpu: None, driver: DriverWish::Epoll };
    let shard = Shard::start(spec, move || async move {
        let (over, turns) = (Rc::new(Latch::new()), Rc::new(Cell::new(0)));
        let (until, counted) = (Rc::clone(&over), Rc::clone(&turns));
        spawn_guarded(async move {
            while !until.is_closed() {
                counted.set(counted.get() + 1);
                yield_now().await;
            }
        });
        let sent = encoded(Way::Gzip, &text(2 << 20));
        let body = decode(Coding::Gzip, pieces(&sent, 64 * 1024), MAX, &Budget::new(1 << 30)).await;
        over.close();
        let _told = tell.send((body.map(|body| body.len()), turns.get()));
    });
    assert!(shard.unwrap().join());
    let (length, turns) = told.recv().unwrap();
    assert_eq!(length, Ok(2 << 20));
    assert!(turns >= (2 << 20) / STEP_OUT, "{turns} turns");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_body_comes_out_as_it_went_in(
        words in prop::collection::vec("[a-z]{1,8}|[ -~]{0,3}|\\PC{0,4}", 0..600),
        size in 1..700_usize,
        way in prop::sample::select(&WAYS[..]),
    ) {
        let body = words.concat();
        let sent = encoded(way.1, body.as_bytes());
        let got = decoded(way.0, &sent, size);
        prop_assert_eq!(got.as_deref(), Ok(body.as_bytes()));
    }

    #[test]
    fn no_bytes_do_any_harm(
        noise in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        way in prop::sample::select(&WAYS[..]),
        len in 0..20_000_usize,
    ) {
        let mut sent = encoded(way.1, &text(len));
        let at = at.index(sent.len());
        let end = sent.len().min(at + noise.len());
        sent.splice(at..end, noise);
        let _whatever = decoded(way.0, &sent, 777);
    }
}
