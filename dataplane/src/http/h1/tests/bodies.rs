//! Bodies: strict chunk grammar, whatever way the bytes are split.

use bytes::BytesMut;
use proptest::prelude::*;

use crate::http::{
    h1::{
        body::{BodyDecoder, BodyFault, Decoded, Truncated},
        parse::{request_head, response_head},
    },
    head::Method,
    limits::Limits,
};

/// Outcome of a body: what it held and what was left over, or why it was refused.
type Outcome = Result<(Vec<u8>, Vec<u8>, bool), BodyFault>;

fn decode(mut decoder: BodyDecoder, pieces: &[&[u8]]) -> Outcome {
    let (mut buf, mut body) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        while let Decoded::Data(data) = decoder.decode(&mut buf)? {
            assert!(!data.is_empty());
            body.extend_from_slice(&data);
        }
    }
    Ok((body, buf.to_vec(), decoder.is_end()))
}

fn chunked(pieces: &[&[u8]]) -> Outcome {
    decode(BodyDecoder::chunked(&Limits::default()), pieces)
}

fn split_everywhere(bytes: &[u8]) -> Outcome {
    let whole = chunked(&[bytes]);
    for at in 0..=bytes.len() {
        let (left, right) = bytes.split_at(at);
        assert_eq!(chunked(&[left, right]), whole, "{:?} at {at}", String::from_utf8_lossy(bytes));
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(chunked(&single), whole);
    whole
}

#[test]
fn well_formed_chunked_bodies_are_read_to_their_end_and_not_further() {
    let long_ext = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(255));
    for (bytes, body, rest) in [
        ("0\r\n\r\n", "", ""),
        ("0\r\n\r\nGET / HTTP/1.1\r\n", "", "GET / HTTP/1.1\r\n"),
        ("5\r\nhello\r\n0\r\n\r\n", "hello", ""),
        ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nmore", "hello world", "more"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789", ""),
        ("a\r\n0\r\n\r\n01234\r\n0\r\n\r\n", "0\r\n\r\n01234", ""),
        ("0005\r\nhello\r\n000\r\n\r\n", "hello", ""),
        ("5;ext\r\nhello\r\n0;x=\"y\"\r\n\r\n", "hello", ""),
        ("5;\r\nhello\r\n0\r\n\r\n", "hello", ""),
        ("1\r\nx\r\n0\r\nTrailer: dropped\r\nT2:\r\n\r\nrest", "x", "rest"),
        (&long_ext, "x", ""),
    ] {
        let expected = Ok((body.as_bytes().to_vec(), rest.as_bytes().to_vec(), true));
        assert_eq!(split_everywhere(bytes.as_bytes()), expected, "{bytes:?}");
    }
}

#[test]
fn malformed_chunked_bodies_are_refused() {
    let long_ext = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(256));
    for bytes in [
        "\r\n",
        "\n",
        "x\r\n",
        "g\r\n",
        "-1\r\n",
        "+1\r\nx\r\n",
        "0x1\r\nx\r\n",
        " 1\r\nx\r\n",
        "1 \r\nx\r\n",
        "1\t\r\nx\r\n",
        "1 ;a\r\nx\r\n",
        ";a\r\n",
        "1,1\r\n",
        "1_0\r\n",
        "1.\r\n",
        "\u{665}\r\n",
        "00000000000000001\r\nx\r\n",
        "11111111111111111\r\nx\r\n",
        "1\nx\r\n0\r\n\r\n",
        "1\rx\r\n0\r\n\r\n",
        "1\r\rx\r\n0\r\n\r\n",
        "1\r\nx\n0\r\n\r\n",
        "1\r\nx\r0\r\n\r\n",
        "1\r\nxy\r\n0\r\n\r\n",
        "1\r\nx0\r\n\r\n",
        "1\r\nx\r\n\r\n0\r\n\r\n",
        "2\r\nx\r\n0\r\n\r\n",
        "0\n\r\n",
        "0\r\n\n",
        "0\r\n\rX",
        "0\r\nX\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\nX: y\rZ\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\n: y\r\n\r\n",
        "0\r\nX: y\r\n z\r\n\r\n",
        "0\r\nX: \u{0}\r\n\r\n",
        "1;a\nx\r\n0\r\n\r\n",
        "1;a\u{0}\r\nx\r\n",
        "1;a\u{7f}\r\nx\r\n",
        "1;a\rb\r\nx\r\n",
        "1;\n0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n",
        &long_ext,
    ] {
        assert!(split_everywhere(bytes.as_bytes()).is_err(), "{bytes:?} taken");
    }
}

#[test]
fn a_trailer_section_is_bounded() {
    let limits = Limits { trailer_bytes: 100, ..Limits::default() };
    let body = |pad: usize| format!("0\r\nX: {}\r\n\r\n", "y".repeat(pad));
    let fits = decode(BodyDecoder::chunked(&limits), &[body(95).as_bytes()]);
    assert_eq!(fits, Ok((vec![], vec![], true)));
    let over = decode(BodyDecoder::chunked(&limits), &[body(96).as_bytes()]);
    assert_eq!(over, Err(BodyFault::Trailer));
}

#[test]
fn the_largest_chunk_size_is_taken_and_does_not_overflow() {
    assert_eq!(chunked(&[b"ffffffffffffffff\r\nabc"]), Ok((b"abc".to_vec(), vec![], false)));
    assert_eq!(chunked(&[b"1ffffffffffffffff\r\nabc"]), Err(BodyFault::Size));
}

#[test]
fn a_body_of_known_length_ends_there() {
    assert_eq!(
        decode(BodyDecoder::length(5), &[b"he", b"llo wor"]),
        Ok((b"hello".to_vec(), b" wor".to_vec(), true))
    );
    assert_eq!(decode(BodyDecoder::length(0), &[b"x"]), Ok((vec![], b"x".to_vec(), true)));
    assert_eq!(decode(BodyDecoder::none(), &[b"x"]), Ok((vec![], b"x".to_vec(), true)));
}

#[test]
fn data_is_not_copied() {
    let mut buf = BytesMut::from(&b"5\r\nhello\r\n0\r\n\r\n"[..]);
    let at = buf[3..].as_ptr();
    let Ok(Decoded::Data(data)) = BodyDecoder::chunked(&Limits::default()).decode(&mut buf) else { panic!() };
    assert_eq!((&data[..], data.as_ptr()), (&b"hello"[..], at));
}

#[test]
fn the_chunks_of_a_read_are_one_piece_and_what_is_wrong_behind_them_comes_after_it() {
    let piece = |decoder: &mut BodyDecoder, buf: &mut BytesMut| match decoder.decode(buf) {
        Ok(Decoded::Data(data)) => data,
        other => panic!("{other:?}"),
    };
    let limits = Limits { chunk_ext_bytes: 16, ..Limits::default() };
    // A size line of every kind; the last chunk's data is not all there.
    let mut buf = BytesMut::from(&b"2\r\nab\r\n003\r\ncde\r\n1;x=y\r\nf\r\nA\r\n01234"[..]);
    let mut decoder = BodyDecoder::chunked(&limits);
    assert_eq!(piece(&mut decoder, &mut buf), b"abcdef01234"[..]);
    assert_eq!((buf.len(), decoder.decode(&mut buf)), (0, Ok(Decoded::NeedMore)));
    // The end is known with the last piece.
    buf.extend_from_slice(b"56789\r\n0\r\n\r\nmore");
    assert_eq!(piece(&mut decoder, &mut buf), b"56789"[..]);
    assert!(decoder.is_end());
    assert_eq!(buf, b"more"[..]);

    let zero = "00000000";
    for (wrong, fault) in [
        ("x", BodyFault::LineEnd),
        ("\r\nx", BodyFault::Size),
        ("\r\n1;\u{0}", BodyFault::Extension),
        ("\r\n0\r\n(", BodyFault::Trailer),
        (&format!("\r\n{zero}{zero}1"), BodyFault::Size),
    ] {
        let mut buf = BytesMut::from(format!("1\r\na\r\n2\r\nbc{wrong}").as_str());
        let mut decoder = BodyDecoder::chunked(&limits);
        assert_eq!(piece(&mut decoder, &mut buf), b"abc"[..], "{wrong:?}");
        assert_eq!(decoder.decode(&mut buf), Err(fault), "{wrong:?}");
    }
}

#[test]
fn a_piece_does_not_keep_the_memory_of_much_framing() {
    let small: String = (0..10_000).map(|_| "1\r\nx\r\n").collect();
    let mut buf = BytesMut::from(small.as_str());
    let Ok(Decoded::Data(data)) = BodyDecoder::chunked(&Limits::default()).decode(&mut buf) else { panic!() };
    assert_eq!(data, vec![b'x'; 10_000]);
    // The buffer is free for another use, which it is not while a piece is a part of it.
    buf.clear();
    assert!(buf.try_reclaim(small.len() / 2), "the piece is still a part of it");
}

#[test]
fn an_early_end_of_the_connection_is_told_from_the_right_one() {
    for (decoder, bytes, end) in [
        (BodyDecoder::length(5), "hell", Err(Truncated)),
        (BodyDecoder::length(5), "hello", Ok(())),
        (BodyDecoder::until_close(), "anything", Ok(())),
        (BodyDecoder::none(), "", Ok(())),
        (BodyDecoder::chunked(&Limits::default()), "", Err(Truncated)),
        (BodyDecoder::chunked(&Limits::default()), "5\r\nhello\r\n", Err(Truncated)),
        (BodyDecoder::chunked(&Limits::default()), "5\r\nhello\r\n0\r\n", Err(Truncated)),
        (BodyDecoder::chunked(&Limits::default()), "5\r\nhello\r\n0\r\n\r", Err(Truncated)),
        (BodyDecoder::chunked(&Limits::default()), "5\r\nhello\r\n0\r\n\r\n", Ok(())),
    ] {
        let (mut decoder, mut buf) = (decoder, BytesMut::from(bytes));
        while let Ok(Decoded::Data(_)) = decoder.decode(&mut buf) {}
        assert_eq!(decoder.finish_at_eof(), end, "{bytes:?}");
    }
}

#[test]
fn framing_follows_method_and_status() {
    let limits = Limits::default();
    let response = |status: u16, field: &str, asked: Method| {
        let bytes = format!("HTTP/1.1 {status} x\r\n{field}\r\n");
        let head = response_head(&mut BytesMut::from(bytes.as_str()), &limits).unwrap().unwrap();
        BodyDecoder::for_response(&head, &asked, &limits).unwrap()
    };
    assert_eq!(response(200, "content-length: 7\r\n", Method::Get).remaining(), Some(7));
    assert!(response(200, "content-length: 7\r\n", Method::Head).is_end());
    assert!(response(204, "content-length: 7\r\n", Method::Get).is_end());
    assert!(response(304, "content-length: 7\r\n", Method::Get).is_end());
    assert!(response(103, "", Method::Get).is_end());
    assert!(response(200, "", Method::Post).is_until_close());
    assert_eq!(response(200, "transfer-encoding: chunked\r\n", Method::Post).remaining(), None);

    let request = |field: &str| {
        let bytes = format!("POST / HTTP/1.1\r\nhost: a\r\n{field}\r\n");
        let head = request_head(&mut BytesMut::from(bytes.as_str()), &limits).unwrap().unwrap();
        BodyDecoder::for_request(&head, &limits).unwrap()
    };
    assert!(request("").is_end());
    assert!(request("content-length: 0\r\n").is_end());
    assert_eq!(request("content-length: 9\r\n").remaining(), Some(9));
    assert!(!request("transfer-encoding: chunked\r\n").is_end());
}

/// `bytes` cut at the given places.
fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

proptest! {
    #[test]
    fn any_bytes_read_as_chunked_give_the_same_however_split(
        bytes in prop::collection::vec(prop::sample::select(b"0123afx;:\r\n\r\n\r\n \0".to_vec()), 0..64),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        prop_assert_eq!(chunked(&cut(&bytes, &cuts)), chunked(&[&bytes]));
    }

    #[test]
    fn what_is_encoded_as_chunks_is_decoded_to_the_same_bytes(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            crate::http::h1::encode::chunk_of(&mut wire, chunk);
        }
        wire.extend_from_slice(crate::http::h1::encode::LAST_CHUNK);
        wire.extend_from_slice(b"NEXT");
        prop_assert_eq!(chunked(&cut(&wire, &cuts)), Ok((chunks.concat(), b"NEXT".to_vec(), true)));
    }
}
