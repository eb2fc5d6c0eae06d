//! What this kernel, or the sandbox around us, allows and tells.

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{FromRawFd, OwnedFd},
};

use anyhow::{Context, bail, ensure};

/// Whether a ring can be made here; containers often forbid it.
pub fn has_io_uring() -> bool {
    // struct io_uring_params (io_uring_setup(2)): 120 bytes, all zero asks for the defaults.
    let mut params = [0_u8; 120];
    // SAFETY: the kernel writes at most the size of io_uring_params to a live buffer of that size.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) };
    let Ok(fd) = i32::try_from(fd) else { return false };
    if fd < 0 {
        return false;
    }
    // SAFETY: the descriptor is ours and is used nowhere else.
    unsafe { libc::close(fd) };
    true
}

/// Bytes sent on `stream`, whose other end is on this machine, that the other end's program has not read.
///
/// # Errors
/// The socket is not connected, or the kernel does not show it.
pub fn unread_by_peer(stream: &TcpStream) -> anyhow::Result<u32> {
    let (ours, theirs) = (stream.local_addr()?, stream.peer_addr()?);
    let (_, unsent) = queues(ours, theirs)?;
    let (unread, _) = queues(theirs, ours)?;
    Ok(unsent + unread)
}

/// Bytes of a connection that its program has not read, and bytes that have not been acknowledged: one question to
/// sock_diag(7), because /proc/net/tcp takes the longer the more connections the machine has.
fn queues(local: SocketAddr, remote: SocketAddr) -> anyhow::Result<(u32, u32)> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const HEADER: usize = 16;
    let (SocketAddr::V4(local), SocketAddr::V4(remote)) = (local, remote) else {
        bail!("{local} is not of IPv4");
    };
    // struct inet_diag_req_v2: family, protocol, nothing more of the socket, in every state, then its addresses (ports and
    // addresses in the order of the network, 16 bytes each), any interface, no cookie.
    let mut question = vec![u8::try_from(libc::AF_INET)?, u8::try_from(libc::IPPROTO_TCP)?, 0, 0];
    question.extend(u32::MAX.to_ne_bytes());
    question.extend(local.port().to_be_bytes());
    question.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        question.extend(address.octets());
        question.extend([0; 12]);
    }
    question.extend([0; 4]);
    question.extend([0xff; 8]);
    // struct nlmsghdr: length, type, flags, sequence, sender.
    let mut message = u32::try_from(HEADER + question.len())?.to_ne_bytes().to_vec();
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(u16::try_from(libc::NLM_F_REQUEST)?.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(question);

    // SAFETY: plain system call.
    let fd = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG)
    };
    ensure!(fd >= 0, std::io::Error::last_os_error());
    // SAFETY: the descriptor was made above and has no other owner.
    let mut netlink = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    netlink.write_all(&message)?;
    let mut answer = [0; 1024];
    let n = netlink.read(&mut answer)?;
    let word = |at: usize| -> anyhow::Result<u32> {
        let bytes = answer[..n].get(at..at + 4).context("a short answer")?;
        Ok(u32::from_ne_bytes(bytes.try_into()?))
    };
    // An error comes instead of a struct inet_diag_msg: 4 bytes of state, 48 of addresses, 4 of timers, then the queues.
    ensure!(
        word(4)? & 0xffff == u32::from(SOCK_DIAG_BY_FAMILY),
        "the kernel knows no connection from {local} to {remote}"
    );
    Ok((word(HEADER + 56)?, word(HEADER + 60)?))
}

/// Whether the pause between retransmissions can be bounded (`TCP_RTO_MAX_MS`, Linux 6.15).
pub fn bounds_retransmission() -> bool {
    let Ok(socket) = std::net::TcpListener::bind("127.0.0.1:0") else { return false };
    let (mut value, mut length) = (0_i32, 4);
    // SAFETY: the kernel writes at most `length` bytes to a live value of that size; the descriptor is open.
    let result = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            libc::IPPROTO_TCP,
            44,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_the_other_end_has_not_read_is_counted() -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut near = TcpStream::connect(listener.local_addr()?)?;
        let mut far = listener.accept()?.0;
        assert_eq!(unread_by_peer(&near)?, 0);
        near.write_all(b"12345")?;
        assert_eq!(unread_by_peer(&near)?, 5);
        far.read_exact(&mut [0; 3])?;
        assert_eq!(unread_by_peer(&near)?, 2);
        Ok(())
    }
}
