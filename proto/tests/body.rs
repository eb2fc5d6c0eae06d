//! Large bodies in parts (WIR-9).

use bytes::Bytes;
use iop_proto::{
    body::{
        AssembleError, Assembler, BODY_BYTES_MAX, CHUNK_BYTES_MAX, Chunks, INLINE_BODY_MAX, Progress, Start,
        split_body,
    },
    frame::FRAME_BYTES_MAX,
    message::BodyChunk,
};
use proptest::prelude::*;

fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| (at % 251) as u8).collect()
}

fn partial(total: u64, first: Bytes) -> Assembler {
    match Assembler::new(total, first, BODY_BYTES_MAX).expect("the start is valid") {
        Start::Partial(assembler) => assembler,
        Start::Complete(_) => panic!("complete at once"),
    }
}

fn chunk(len: usize, last: bool) -> BodyChunk {
    BodyChunk { stream: 1, data: pattern(len), last }
}

/// What arrives at the other end of [`split_body`] and [`Chunks`].
fn through(body: &Bytes) -> Bytes {
    let (first, rest) = split_body(body.clone());
    let mut chunks = Chunks::new(1, rest);
    let mut assembler =
        match Assembler::new(body.len() as u64, first, BODY_BYTES_MAX).expect("the start is valid") {
            Start::Complete(whole) => {
                assert_eq!(chunks.len(), 0);
                return whole;
            }
            Start::Partial(assembler) => assembler,
        };
    loop {
        let chunk = chunks.next().expect("the last chunk is marked");
        match assembler.push(&chunk).expect("the chunk fits") {
            Progress::More { received } => assert_eq!(received as usize, body.len() - chunks.bytes_left()),
            Progress::Complete(whole) => {
                assert_eq!(chunks.next(), None);
                return whole;
            }
        }
    }
}

// req: WIR-9
#[test]
fn body_of_any_size_arrives_whole() {
    for len in [0, 1, INLINE_BODY_MAX, INLINE_BODY_MAX + 1, 2 * CHUNK_BYTES_MAX, 300_001, FRAME_BYTES_MAX + 1]
    {
        let body = pattern(len);
        assert!(through(&body) == body, "{len} bytes");
    }
}

// req: WIR-9
#[test]
fn body_over_64_kib_travels_as_chunks_of_at_most_64_kib() {
    let small = pattern(64 * 1024);
    assert_eq!(split_body(small.clone()), (small, Bytes::new()));

    let large = pattern(200_000);
    let (first, rest) = split_body(large.clone());
    assert!(first.is_empty());
    let chunks: Vec<BodyChunk> = Chunks::new(4, rest).collect();
    let lengths: Vec<usize> = chunks.iter().map(|chunk| chunk.data.len()).collect();
    assert_eq!(lengths, [65_536, 65_536, 65_536, 3392]);
    assert_eq!(chunks.iter().map(|chunk| chunk.last).collect::<Vec<_>>(), [false, false, false, true]);
    assert!(chunks.iter().all(|chunk| chunk.stream == 4));
    assert!(
        chunks.iter().all(|chunk| large.as_ptr_range().contains(&chunk.data.as_ptr())),
        "a chunk was copied"
    );
}

// req: WIR-9
#[test]
fn body_limit_is_larger_than_the_frame_bound_and_enforced() {
    assert!(BODY_BYTES_MAX > FRAME_BYTES_MAX as u64);
    let error = Assembler::new(BODY_BYTES_MAX + 1, Bytes::new(), BODY_BYTES_MAX).unwrap_err();
    assert_eq!(error, AssembleError::TooLarge { total: BODY_BYTES_MAX + 1, max: BODY_BYTES_MAX });
    let error = Assembler::new(u64::MAX, Bytes::new(), BODY_BYTES_MAX).unwrap_err();
    assert_eq!(error, AssembleError::TooLarge { total: u64::MAX, max: BODY_BYTES_MAX });
    assert!(matches!(Assembler::new(BODY_BYTES_MAX, Bytes::new(), BODY_BYTES_MAX), Ok(Start::Partial(_))));
}

// req: WIR-9
#[test]
fn parts_that_are_not_the_announced_body_are_refused() {
    let error = Assembler::new(2, pattern(3), BODY_BYTES_MAX).unwrap_err();
    assert_eq!(error, AssembleError::LengthMismatch { received: 3, total: 2 });

    let error = partial(100, pattern(60)).push(&chunk(41, true)).unwrap_err();
    assert_eq!(error, AssembleError::LengthMismatch { received: 101, total: 100 });
    let error = partial(100, pattern(60)).push(&chunk(40, false)).unwrap_err();
    assert_eq!(error, AssembleError::LengthMismatch { received: 100, total: 100 });
    let error = partial(100, pattern(60)).push(&chunk(39, true)).unwrap_err();
    assert_eq!(error, AssembleError::LastTooEarly { received: 99, total: 100 });
    assert_eq!(partial(100, Bytes::new()).push(&chunk(0, false)), Err(AssembleError::ChunkSize(0)));
    let too_long = partial(1 << 20, Bytes::new()).push(&chunk(CHUNK_BYTES_MAX + 1, false));
    assert_eq!(too_long, Err(AssembleError::ChunkSize(CHUNK_BYTES_MAX + 1)));
}

// req: WIR-9
#[test]
fn nothing_follows_the_last_chunk_or_an_error() {
    let mut assembler = partial(10, Bytes::new());
    assert_eq!(assembler.push(&chunk(10, true)), Ok(Progress::Complete(pattern(10))));
    assert_eq!(assembler.push(&chunk(1, true)), Err(AssembleError::AfterLast));

    let mut assembler = partial(10, Bytes::new());
    assert!(assembler.push(&chunk(11, true)).is_err());
    assert_eq!(assembler.push(&chunk(10, true)), Err(AssembleError::AfterLast));
}

#[test]
fn sender_with_little_credit_gets_smaller_chunks() {
    let body = pattern(100);
    let mut chunks = Chunks::new(1, body.clone());
    assert_eq!(chunks.next_within(0), None);
    assert_eq!(chunks.next_within(70).unwrap().data, body[..70]);
    let last = chunks.next_within(usize::MAX).unwrap();
    assert_eq!((last.data.as_ref(), last.last), (&body[70..], true));
    assert_eq!(chunks.next_within(70), None);
}

proptest! {
    #[test]
    fn any_cut_of_a_body_gives_it_back(len in 2_usize..5000, cuts in proptest::collection::vec(1_usize..700, 1..40)) {
        let body = pattern(len);
        let mut chunks = Chunks::new(9, body.clone());
        let mut assembler = partial(len as u64, Bytes::new());
        let mut cuts = cuts.into_iter().cycle();
        let mut whole = None;
        while let Some(chunk) = chunks.next_within(cuts.next().unwrap_or(1)) {
            if let Progress::Complete(bytes) = assembler.push(&chunk).unwrap() {
                whole = Some(bytes);
            }
        }
        prop_assert_eq!(whole, Some(body));
    }
}

// req: WIR-9
#[test]
fn a_body_held_in_pieces_makes_the_same_body_and_its_last_chunk_alone_is_marked() {
    let body = pattern(300_000);
    for piece in [1000, 65_536, 100_000, 300_000] {
        let pieces = (0..300_000).step_by(piece).map(|at| body.slice(at..300_000.min(at + piece)));
        let chunks = Chunks::of_pieces(7, [Bytes::new()].into_iter().chain(pieces).chain([Bytes::new()]));
        let (left, expected) = (chunks.bytes_left(), chunks.len());
        let chunks: Vec<BodyChunk> = chunks.collect();
        assert_eq!((left, chunks.len()), (300_000, expected));
        assert!(chunks.iter().all(|chunk| chunk.stream == 7 && chunk.data.len() <= CHUNK_BYTES_MAX));
        assert_eq!(chunks.iter().filter(|chunk| chunk.last).count(), 1);
        assert!(chunks.last().is_some_and(|chunk| chunk.last));
        let joined: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.data.to_vec()).collect();
        assert_eq!(joined, body);
    }
}
