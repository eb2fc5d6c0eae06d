//! Requests and responses of well-behaved clients.

use std::future::poll_fn;

use bytes::Bytes;

use super::{
    harness::{MAX_BODY, Server, client, client_with, get, on_both, post, whole},
    raw::{END_HEADERS, END_STREAM, HEADERS, Raw, request},
};
use crate::{
    http::{http2::Http2Limits, limits::Limits},
    shard::DriverWish,
};

#[test]
fn requests_are_answered_at_the_same_time() {
    on_both(|server| {
        // Room for all of them, as one is read after the other.
        let mut settings = ::h2::client::Builder::new();
        settings.initial_connection_window_size(1 << 20);
        let answers = client_with(server.address, settings, |send| async move {
            let mut send = send.ready().await.unwrap();
            let mut waiting = Vec::new();
            for _ in 0..100 {
                waiting.push(send.send_request(get("/stream?3"), true).unwrap().0);
            }
            let mut answers = Vec::new();
            for response in waiting {
                let response = response.await.unwrap();
                assert!(response.headers().contains_key("date"));
                answers.push(whole(response).await);
            }
            answers
        });
        assert_eq!(answers.len(), 100);
        assert!(answers.iter().all(|answer| *answer == (200, Ok(vec![b'x'; 3000]))));
    });
}

#[test]
fn a_body_of_any_size_is_read_whole_and_its_windows_open_again() {
    on_both(|server| {
        let sent: Vec<u8> = (0..MAX_BODY).map(|at| (at % 251) as u8).collect();
        let expected = sent.clone();
        let answer = client(server.address, |send| async move {
            let mut send = send.ready().await.unwrap();
            let (response, mut body) = send.send_request(post("/echo"), false).unwrap();
            let mut rest = Bytes::from(sent);
            while !rest.is_empty() {
                body.reserve_capacity(rest.len());
                let room = poll_fn(|cx| body.poll_capacity(cx)).await.unwrap().unwrap();
                body.send_data(rest.split_to(room.min(rest.len())), rest.is_empty()).unwrap();
            }
            whole(response.await.unwrap()).await
        });
        assert_eq!(answer.0, 200);
        assert!(answer.1 == Ok(expected));
        server.saw_at_last("not busy");
        assert_eq!(server.budget.held(), 0);
    });
}

// req: API-1
#[test]
fn a_response_that_was_not_finished_never_ends_like_one_that_was() {
    on_both(|server| {
        for (path, expected) in [
            ("/cut", Err("Some(INTERNAL_ERROR) after 16".to_owned())),
            ("/short", Err("Some(INTERNAL_ERROR) after 4".to_owned())),
            ("/until-close", Ok(b"all".to_vec())),
        ] {
            let answer = client(server.address, move |send| async move {
                let mut send = send.ready().await.unwrap();
                let response = send.send_request(get(path), true).unwrap().0;
                whole(response.await.unwrap()).await
            });
            assert_eq!(answer, (200, expected), "{path}");
        }
    });
}

// req: API-1
#[test]
fn a_task_that_panics_resets_its_stream_and_no_other() {
    let server = Server::usual(DriverWish::Auto);
    let (panicked, other) = client(server.address, |send| async move {
        let mut send = send.ready().await.unwrap();
        let (panics, _) = send.send_request(get("/panic"), true).unwrap();
        let (other, _) = send.send_request(get("/stream?5"), true).unwrap();
        let panicked = match panics.await {
            Ok(response) => whole(response).await.1.map(|_| ()),
            // The reset overtook the head.
            Err(error) => Err(format!("{:?} after 0", error.reason())),
        };
        (panicked, whole(other.await.unwrap()).await)
    });
    assert_eq!(panicked, Err("Some(INTERNAL_ERROR) after 0".to_owned()));
    assert_eq!(other, (200, Ok(vec![b'x'; 5000])));
    assert_eq!(server.panicked(), 1);
}

#[test]
fn a_client_that_resets_a_stream_is_gone_for_its_owner_and_others_go_on() {
    on_both(|server| {
        let answer = client(server.address, |send| async move {
            let mut send = send.ready().await.unwrap();
            let (_waits, mut stream) = send.send_request(get("/wait"), true).unwrap();
            let (other, _) = send.send_request(get("/stream?2"), true).unwrap();
            let other = whole(other.await.unwrap()).await;
            stream.send_reset(::h2::Reason::CANCEL);
            let (next, _) = send.ready().await.unwrap().send_request(get("/hello"), true).unwrap();
            (other, whole(next.await.unwrap()).await)
        });
        assert_eq!(answer, ((200, Ok(vec![b'x'; 2000])), (200, Ok(b"hello".to_vec()))));
        let all = server.all_up_to("ended closed");
        assert!(all.contains(&"gone true".to_owned()), "{all:?}");
        assert!(all.contains(&"reset by client cancel".to_owned()), "{all:?}");
    });
}

#[test]
fn when_a_client_leaves_all_its_streams_are_told() {
    on_both(|server| {
        let mut raw = Raw::connect(server.address);
        for stream in [1, 3] {
            raw.frame(HEADERS, END_STREAM | END_HEADERS, stream, &request("GET", "/wait", &[]));
            server.saw_at_last("waits");
        }
        raw.end();
        server.saw_all(&["gone true", "gone true", "ended closed"]);
    });
}

#[test]
fn a_stream_whose_window_is_shut_holds_up_no_other_and_ends_by_the_stall_limit() {
    let limits = Limits { write_stall: std::time::Duration::from_millis(700), ..Limits::default() };
    let server = Server::start(DriverWish::Auto, limits, Http2Limits::default());
    let mut settings = ::h2::client::Builder::new();
    settings.initial_window_size(10_000).initial_connection_window_size(1 << 20);
    let (other, cut) = client_with(server.address, settings, |send| async move {
        let mut send = send.ready().await.unwrap();
        let (slow, _) = send.send_request(get("/stream?1000"), true).unwrap();
        let slow = slow.await.unwrap();
        let (other, _) = send.ready().await.unwrap().send_request(get("/stream?200"), true).unwrap();
        let other = whole(other.await.unwrap()).await;
        // Nothing of it was read, and so its window stayed shut.
        let mut slow = slow.into_body();
        let mut cut = None;
        while let Some(data) = poll_fn(|cx| slow.poll_data(cx)).await {
            match data {
                Ok(_unread) => {}
                Err(error) => {
                    cut = error.reason();
                    break;
                }
            }
        }
        (other, cut)
    });
    assert_eq!(other, (200, Ok(vec![b'x'; 200_000])));
    assert_eq!(cut, Some(::h2::Reason::INTERNAL_ERROR));
    let all = server.all_up_to("ended closed");
    let stalled: Vec<_> = all.iter().filter(|what| what.contains("stopped reading")).collect();
    assert_eq!(stalled, ["after 10: the peer stopped reading"], "what it had is what its window took");
}

#[test]
fn a_head_alone_and_no_body_end_with_the_head() {
    on_both(|server| {
        let answers = client(server.address, |send| async move {
            let mut send = send.ready().await.unwrap();
            let head =
                ::http::Request::builder().method("HEAD").uri("http://edge.test/hello").body(()).unwrap();
            let (head, _) = send.send_request(head, true).unwrap();
            let (empty, _) = send.send_request(get("/empty"), true).unwrap();
            let head = head.await.unwrap();
            let length = head.headers()["content-length"].clone();
            let ends = head.body().is_end_stream();
            (length, ends, whole(head).await, whole(empty.await.unwrap()).await)
        });
        assert_eq!(answers.0, "5");
        assert!(answers.1, "the head ends it");
        assert_eq!((answers.2, answers.3), ((200, Ok(vec![])), (204, Ok(vec![]))));
    });
}

/// Whether the client goes on sending or stops: what it sends is thrown away for a while.
#[test]
fn an_answer_before_the_body_ends_the_request_without_an_error() {
    on_both(|server| {
        for goes_on in [true, false] {
            let answer = client(server.address, move |send| async move {
                let mut send = send.ready().await.unwrap();
                let (response, mut body) = send.send_request(post("/unread"), false).unwrap();
                // More than its windows take, so that the server must open them for all of it.
                let mut rest = Bytes::from(vec![0; if goes_on { MAX_BODY } else { 10_000 }]);
                while !rest.is_empty() {
                    body.reserve_capacity(rest.len());
                    let room = poll_fn(|cx| body.poll_capacity(cx)).await.unwrap().unwrap();
                    let piece = rest.split_to(room.min(rest.len()));
                    body.send_data(piece, goes_on && rest.is_empty()).unwrap();
                }
                let answer = whole(response.await.unwrap()).await;
                let reset = if goes_on { None } else { poll_fn(|cx| body.poll_reset(cx)).await.ok() };
                (answer, reset)
            });
            let reset = (!goes_on).then_some(::h2::Reason::NO_ERROR);
            assert_eq!(answer, ((413, Ok(b"too much".to_vec())), reset));
        }
    });
}

#[test]
fn a_body_over_the_limit_is_refused_by_what_it_announces_or_by_what_comes() {
    on_both(|server| {
        for announced in [true, false] {
            let answer = client(server.address, move |send| async move {
                let mut send = send.ready().await.unwrap();
                let mut request = post("/echo");
                if announced {
                    request.headers_mut().insert("content-length", (MAX_BODY + 1).into());
                }
                let (response, mut body) = send.send_request(request, false).unwrap();
                let mut rest = Bytes::from(vec![0; MAX_BODY + 1]);
                while !announced && !rest.is_empty() {
                    body.reserve_capacity(rest.len());
                    match poll_fn(|cx| body.poll_capacity(cx)).await {
                        Some(Ok(room)) => body.send_data(rest.split_to(room.min(rest.len())), false).unwrap(),
                        _ => break,
                    }
                }
                whole(response.await.unwrap()).await
            });
            assert_eq!(answer, (413, Ok(b"no".to_vec())), "{announced}");
        }
    });
}

#[test]
fn a_drain_ends_the_connection_when_what_runs_is_answered() {
    on_both(|server| {
        let address = server.address;
        std::thread::scope(|scope| {
            let answers = scope.spawn(move || {
                client(address, |send| async move {
                    let mut send = send.ready().await.unwrap();
                    let (waits, mut stream) = send.send_request(get("/wait"), true).unwrap();
                    let (streams, _) = send.send_request(get("/stream?200"), true).unwrap();
                    let streams = streams.await.unwrap();
                    let streams = whole(streams).await;
                    // The end of the connection is told before the last stream is over.
                    let told = poll_fn(|cx| send.poll_ready(cx)).await;
                    drop(told);
                    stream.send_reset(::h2::Reason::CANCEL);
                    let _gone = waits.await;
                    streams
                })
            });
            server.saw_at_last("waits");
            server.drain();
            assert_eq!(answers.join().unwrap(), (200, Ok(vec![b'x'; 200_000])));
        });
        server.saw_all(&["goaway no_error", "gone true", "ended drained"]);
    });
}
