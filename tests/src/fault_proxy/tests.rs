use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::{BOTH, End, FaultProxy, Flow, Way};
use crate::bench::eventually;

/// So long nothing may come where nothing is to come.
const QUIET: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

/// A proxy, and a connection through it: who dialled and the target's end.
fn pair() -> anyhow::Result<(FaultProxy, TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let proxy = FaultProxy::start(&listener.local_addr()?.to_string())?;
    let client = TcpStream::connect(proxy.address())?;
    let (server, _) = listener.accept()?;
    for socket in [&client, &server] {
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
    }
    Ok((proxy, client, server))
}

/// Bytes whose order shows.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| u8::try_from(n * 7 % 251).unwrap_or(0)).collect()
}

fn take(socket: &mut TcpStream, count: usize) -> anyhow::Result<Vec<u8>> {
    let mut taken = vec![0; count];
    socket.read_exact(&mut taken)?;
    Ok(taken)
}

/// Nothing comes for a while.
fn is_quiet(socket: &mut TcpStream) -> anyhow::Result<bool> {
    socket.set_read_timeout(Some(QUIET))?;
    let read = socket.read(&mut [0]);
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock))
}

fn was_reset(socket: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn everything_passes_both_ways_with_its_end() -> anyhow::Result<()> {
    let (proxy, mut client, mut server) = pair()?;
    let sent = bytes(300_000);
    let (mut writer, there) = (client.try_clone()?, sent.clone());
    let writing = thread::spawn(move || writer.write_all(&there));
    assert_eq!(take(&mut server, sent.len())?, sent);
    let _written = writing.join();
    server.write_all(b"back")?;
    assert_eq!(take(&mut client, 4)?, b"back");
    client.shutdown(Shutdown::Write)?;
    assert_eq!(server.read(&mut [0])?, 0, "the end passes");
    server.write_all(b"more")?;
    assert_eq!(take(&mut client, 4)?, b"more", "and only that of its own direction");
    eventually(PATIENCE, "all is counted", || Ok(BOTH.map(|way| proxy.passed(way)) == [300_000, 8]))?;
    drop(server);
    assert_eq!(client.read(&mut [0])?, 0);
    Ok(())
}

#[test]
fn what_is_held_comes_later_and_whole() -> anyhow::Result<()> {
    let (proxy, mut client, mut server) = pair()?;
    proxy.flow(&[Way::Up], Flow::Hold);
    client.write_all(&bytes(1000))?;
    assert!(is_quiet(&mut server)?);
    server.write_all(b"x")?;
    assert_eq!(take(&mut client, 1)?, b"x", "the other direction goes on");
    // The window fills, so the sender feels it.
    client.set_write_timeout(Some(QUIET))?;
    let mut written = 1000;
    while let Ok(n) = client.write(&vec![0; 65536]) {
        written += n;
        assert!(written < 64 * 1024 * 1024, "nobody reads");
    }
    proxy.heal()?;
    assert_eq!(take(&mut server, 1000)?, bytes(1000));
    assert_eq!(take(&mut server, written - 1000)?.len(), written - 1000);
    Ok(())
}

#[test]
fn what_is_swallowed_never_comes() -> anyhow::Result<()> {
    let (proxy, mut client, mut server) = pair()?;
    proxy.flow(&BOTH, Flow::Swallow);
    client.write_all(&bytes(100_000))?;
    client.shutdown(Shutdown::Write)?;
    assert!(is_quiet(&mut server)?, "neither bytes nor the end");
    Ok(())
}

#[test]
fn a_delay_keeps_the_order_and_does_not_slow_the_flow() -> anyhow::Result<()> {
    let (proxy, mut client, mut server) = pair()?;
    let delay = Duration::from_millis(150);
    proxy.delay(&BOTH, delay);
    let started = Instant::now();
    let sent = bytes(400_000);
    let (mut writer, there) = (client.try_clone()?, sent.clone());
    let writing = thread::spawn(move || there.chunks(10_000).try_for_each(|piece| writer.write_all(piece)));
    assert_eq!(take(&mut server, 1)?, sent[..1]);
    assert!(started.elapsed() >= delay);
    assert_eq!(take(&mut server, sent.len() - 1)?, sent[1..]);
    let _written = writing.join();
    server.write_all(b"x")?;
    let back = Instant::now();
    take(&mut client, 1)?;
    assert!(back.elapsed() >= delay);
    Ok(())
}

#[test]
fn a_throttle_lets_so_many_bytes_pass_in_a_second() -> anyhow::Result<()> {
    let (proxy, mut client, mut server) = pair()?;
    proxy.throttle(&[Way::Up], 10_000);
    let started = Instant::now();
    let sent = bytes(5000);
    client.write_all(&sent)?;
    assert_eq!(take(&mut server, sent.len())?, sent);
    assert!(started.elapsed() >= Duration::from_millis(450), "{:?}", started.elapsed());
    // Byte by byte.
    proxy.throttle(&[Way::Up], 20);
    client.write_all(b"abc")?;
    let mut one = [0; 8];
    assert_eq!(server.read(&mut one)?, 1);
    Ok(())
}

#[test]
fn a_half_close_ends_one_direction_alone() -> anyhow::Result<()> {
    let (proxy, mut client, mut server) = pair()?;
    client.write_all(b"a")?;
    take(&mut server, 1)?;
    proxy.half_close(Way::Up);
    assert_eq!(server.read(&mut [0])?, 0);
    server.write_all(b"b")?;
    assert_eq!(take(&mut client, 1)?, b"b");
    client.write_all(b"to nobody")?;
    assert!(is_quiet(&mut client)?, "it is not told");
    Ok(())
}

#[test]
fn a_cut_comes_after_exactly_so_many_bytes() -> anyhow::Result<()> {
    for (end, count) in [(End::Close, 0), (End::Close, 777), (End::Reset, 20_000)] {
        let (proxy, mut client, mut server) = pair()?;
        client.write_all(b"before")?;
        take(&mut server, 6)?;
        proxy.cut_after(Way::Up, count, end);
        let _cut = client.write_all(&bytes(30_000));
        let mut got = Vec::new();
        let read = server.read_to_end(&mut got);
        assert_eq!(read.is_err(), end == End::Reset, "{end:?} {read:?}");
        // RST throws away what was not read yet.
        assert!(got == bytes(usize::try_from(count)?) || end == End::Reset, "{end:?} {count}: {}", got.len());
        assert_eq!(proxy.passed(Way::Up), 6 + count);
    }
    Ok(())
}

#[test]
fn cuts_of_coming_connections_are_taken_one_by_one() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let proxy = FaultProxy::start(&listener.local_addr()?.to_string())?;
    proxy.cut_next(Way::Up, [3, 5], End::Close);
    for count in [3, 5, 8] {
        let mut client = TcpStream::connect(proxy.address())?;
        let (mut server, _) = listener.accept()?;
        client.write_all(b"12345678")?;
        client.shutdown(Shutdown::Write)?;
        let mut got = Vec::new();
        server.read_to_end(&mut got)?;
        assert_eq!(got.len(), count);
    }
    assert_eq!(proxy.cuts_left(), 0);
    Ok(())
}

#[test]
fn a_reset_reaches_both_ends_and_refusal_every_new_one() -> anyhow::Result<()> {
    let (proxy, mut client, mut server) = pair()?;
    client.write_all(b"a")?;
    take(&mut server, 1)?;
    proxy.refuse(true);
    let mut refused = TcpStream::connect(proxy.address())?;
    refused.set_read_timeout(Some(PATIENCE))?;
    assert!(was_reset(&mut refused));
    proxy.reset();
    assert!(was_reset(&mut client) && was_reset(&mut server));
    assert_eq!(proxy.accepted(), 1);
    Ok(())
}

#[test]
fn a_reset_by_one_end_passes_to_the_other() -> anyhow::Result<()> {
    let (_proxy, mut client, server) = pair()?;
    super::socket::reset_on_close(&server);
    drop(server);
    assert!(was_reset(&mut client));
    Ok(())
}

#[test]
fn who_vanishes_acknowledges_nothing_and_comes_back_without_loss() -> anyhow::Result<()> {
    let (proxy, mut client, mut server) = pair()?;
    let unacked = |socket: &TcpStream| -> anyhow::Result<i32> {
        let mut bytes = 0;
        // SAFETY: SIOCOUTQ writes one int.
        let result =
            unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(socket), libc::TIOCOUTQ, &raw mut bytes) };
        anyhow::ensure!(result == 0);
        Ok(bytes)
    };
    proxy.vanish()?;
    // Every connection has heard of it when its filter stands; bytes sent before that are acknowledged.
    let end = Instant::now() + PATIENCE;
    let mut sent = 0;
    while unacked(&client)? == 0 {
        client.write_all(b"x")?;
        sent += 1;
        thread::sleep(Duration::from_millis(20));
        assert!(Instant::now() < end, "somebody acknowledges");
    }
    let address = proxy.address().parse()?;
    assert!(TcpStream::connect_timeout(&address, QUIET).is_err(), "nobody can connect");
    assert!(unacked(&client)? > 0);
    proxy.heal()?;
    assert_eq!(take(&mut server, sent)?, vec![b'x'; sent]);
    server.write_all(b"y")?;
    assert_eq!(take(&mut client, 1)?, b"y");
    // The listener behind is gone by now, so this may be reset as soon as it stands.
    let _late = TcpStream::connect_timeout(&address, PATIENCE);
    while proxy.accepted() < 2 {
        thread::sleep(Duration::from_millis(5));
        assert!(Instant::now() < end + PATIENCE, "connections come again");
    }
    Ok(())
}
