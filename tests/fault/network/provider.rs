//! Between Node and provider.

use std::{thread, time::Duration};

use iop_tests::{
    bench::{SOON, assert_broken_stream, assert_error, eventually},
    fault_proxy::{BOTH, Flow, Way},
};

use super::{DEADLINE, Path, rest};

// req: API-1, TUN-4
#[test]
fn a_reset_or_a_half_close_by_the_provider_breaks_the_stream_visibly() -> anyhow::Result<()> {
    let path = Path::start(4)?;
    let breaks: [&dyn Fn(); 2] = [&|| path.upstream.reset(), &|| path.upstream.half_close(Way::Down)];
    for cut in breaks {
        let mut streams = path.streams(3, "events=100000 gap=5ms")?;
        let mut silent = path.bench.begin(false, "prefill=600s")?;
        eventually(SOON, "all run", || Ok(path.bench.seen("requests_open")? == 4))?;
        cut();
        for stream in &mut streams {
            assert_broken_stream(&rest(stream)?, "upstream_error");
        }
        assert_error(&silent.answer()?, 502, Some("upstream_error"));
        path.is_untouched()?;
        path.serves_again()?;
    }
    Ok(())
}

// req: HBT-2, TUN-3
#[test]
fn a_provider_that_is_silent_beyond_the_deadline_is_waited_for() -> anyhow::Result<()> {
    let path = Path::start(4)?;
    let mut streams = path.streams(2, "events=200 gap=5ms")?;
    let mut silent = path.bench.begin(true, "prefill=12s events=3")?;
    path.upstream.flow(&BOTH, Flow::Hold);
    thread::sleep(DEADLINE + Duration::from_secs(2));
    path.upstream.heal()?;
    for stream in &mut streams {
        rest(stream)?.assert_sealed();
    }
    silent.answer()?.assert_sealed();
    path.is_untouched()?;
    path.serves_again()
}

#[test]
fn a_provider_that_refuses_connections_is_told_and_found_again() -> anyhow::Result<()> {
    let path = Path::start(4)?;
    path.upstream.refuse(true);
    let answer = path.bench.chat(true, "")?;
    assert_eq!(answer.status, 502, "{}", answer.text());
    path.upstream.refuse(false);
    path.serves_again()
}
