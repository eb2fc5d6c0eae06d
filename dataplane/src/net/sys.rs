//! Socket calls that the runtime does not offer: non-blocking receive and send, and options on a live stream.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use bytes::{BufMut, BytesMut};
use socket2::SockRef;

/// Sets the blocking mode that the shard's driver wants: epoll needs a non-blocking socket, and the ring a blocking one
/// (on a non-blocking one it completes with EAGAIN instead of waiting).
///
/// # Errors
/// The socket is dead.
pub(crate) fn prepare<S: AsFd>(socket: &S) -> io::Result<()> {
    SockRef::from(socket).set_nonblocking(monoio::utils::is_legacy())
}

/// As [`prepare`], of a socket that is blocking, as those that the standard library accepts are.
///
/// # Errors
/// The socket is dead.
pub(super) fn prepare_accepted<S: AsFd>(socket: &S) -> io::Result<()> {
    if monoio::utils::is_legacy() { prepare(socket) } else { Ok(()) }
}

/// Whether a write of one page or less to a file, pipe or socket would go through without waiting, or fail at once.
pub(crate) fn is_writable(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: the pointer is to one live local, as the count says; the call does not wait.
    #[expect(unsafe_code, reason = "no safe binding of poll in our crates")]
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0
}

/// The user that the process acts as.
pub(super) fn user() -> u32 {
    // SAFETY: the call takes nothing, always succeeds and touches no memory of ours (geteuid(2)).
    #[expect(unsafe_code, reason = "the standard library does not tell")]
    unsafe {
        libc::geteuid()
    }
}

/// Runs `f` with the socket's options.
pub(super) fn with_socket<S: AsRawFd, T>(socket: &S, f: impl FnOnce(SockRef<'_>) -> T) -> T {
    // SAFETY: `socket` is borrowed for the whole call, so its descriptor stays open.
    #[expect(unsafe_code, reason = "the runtime's streams do not implement AsFd")]
    let fd = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
    f(SockRef::from(&fd))
}

/// Sets `TCP_RTO_MAX_MS` (include/uapi/linux/tcp.h): 1 s to 120 s.
///
/// # Errors
/// The kernel is older than 6.15.
pub(super) fn set_retransmit_max(socket: &SockRef<'_>, pause: Duration) -> io::Result<()> {
    const TCP_RTO_MAX_MS: libc::c_int = 44;
    let millis = libc::c_int::try_from(pause.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open while `socket` lives, and the kernel reads the four bytes of `millis` during the call.
    #[expect(unsafe_code, reason = "no crate knows this option yet")]
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_RTO_MAX_MS,
            (&raw const millis).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives at most `max` bytes without waiting and appends them. `None` = nothing there yet, `Some(0)` = end of stream.
pub(super) fn try_receive<S: AsRawFd>(
    socket: &S,
    buffer: &mut BytesMut,
    max: usize,
) -> io::Result<Option<usize>> {
    buffer.reserve(max);
    let spare = buffer.spare_capacity_mut();
    let room = spare.len().min(max);
    let Some(spare) = spare.get_mut(..room) else { return Ok(None) };
    match with_socket(socket, |s| s.recv_with_flags(spare, libc::MSG_DONTWAIT)) {
        Ok(n) => {
            // SAFETY: the kernel initialised the first `n` bytes of the spare capacity, n ≤ room.
            #[expect(unsafe_code, reason = "appending what recv wrote without a copy")]
            unsafe {
                buffer.advance_mut(n);
            }
            Ok(Some(n))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a read would give the end of the stream or an error. Takes nothing out of the socket.
pub(super) fn is_at_end<S: AsRawFd>(socket: &S) -> bool {
    let mut byte = [std::mem::MaybeUninit::uninit()];
    match with_socket(socket, |s| s.recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT)) {
        Ok(n) => n == 0,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

/// Sends what the socket takes of `bytes` without waiting. `None` = it takes nothing now.
pub(super) fn try_send<S: AsRawFd>(socket: &S, bytes: &[u8]) -> io::Result<Option<usize>> {
    match with_socket(socket, |s| s.send_with_flags(bytes, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)) {
        Ok(n) => Ok(Some(n)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Bytes that were sent and that the peer has not acknowledged (SIOCOUTQ, tcp(7)).
pub(super) fn unacknowledged<S: AsRawFd>(socket: &S) -> io::Result<usize> {
    queued(socket, libc::TIOCOUTQ)
}

/// Bytes that have arrived and were not read (SIOCINQ, tcp(7)), as far as can be told.
pub(super) fn unread<S: AsRawFd>(socket: &S) -> usize {
    queued(socket, libc::FIONREAD).unwrap_or_default()
}

fn queued<S: AsRawFd>(socket: &S, request: libc::Ioctl) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed, and both requests write one int to a live local.
    #[expect(unsafe_code, reason = "no safe binding of SIOCINQ and SIOCOUTQ in our crates")]
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut bytes) };
    if result == 0 { Ok(usize::try_from(bytes).unwrap_or_default()) } else { Err(io::Error::last_os_error()) }
}

/// Bounds what the kernel takes from us beyond what it has sent: TCP_NOTSENT_LOWAT (tcp(7)). On a listening socket it holds
/// for every connection that is accepted.
pub(super) fn bound_unsent<S: AsFd>(socket: &S, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(bytes)
}
