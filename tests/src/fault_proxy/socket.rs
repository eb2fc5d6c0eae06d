//! What the standard library does not ask of a socket.

use std::{
    io,
    net::{SocketAddrV4, TcpStream},
    os::fd::{AsRawFd, FromRawFd, RawFd},
    time::Duration,
};

/// Bytes that the kernel takes before the proxy does: little, or a throttle would be a buffer.
const RECEIVE_BUFFER: libc::c_int = 16 * 1024;
/// Bytes of a segment, as on Ethernet: loopback's 64 KiB do not fit a small buffer.
const SEGMENT: libc::c_int = 1400;

fn set<T>(fd: RawFd, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: the kernel reads `length` bytes of a live value, and what a filter program points to, during the call.
    let result = unsafe { libc::setsockopt(fd, level, option, (&raw const *value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// For a listener, whose connections inherit it, or a socket that is not connected yet.
pub(super) fn small_receive_buffer(socket: &impl AsRawFd) -> io::Result<()> {
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &RECEIVE_BUFFER)
}

/// Likewise.
pub(super) fn small_segments(socket: &impl AsRawFd) -> io::Result<()> {
    set(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, &SEGMENT)
}

/// A connection to `target` with what must be set before there is one.
pub(super) fn connect(target: SocketAddrV4) -> io::Result<TcpStream> {
    // SAFETY: plain system call; the descriptor is owned by nobody else.
    let socket = unsafe {
        match libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) {
            -1 => return Err(io::Error::last_os_error()),
            fd => TcpStream::from_raw_fd(fd),
        }
    };
    small_receive_buffer(&socket)?;
    small_segments(&socket)?;
    let address = libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default(),
        sin_port: target.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*target.ip()).to_be() },
        sin_zero: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: the kernel reads `length` bytes of a live address.
    match unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The close sends RST.
pub(super) fn reset_on_close(socket: &impl AsRawFd) {
    let _dead_already = crate::sockets::reset_on_close(socket);
}

/// The kernel drops every packet that comes for this socket before it looks at it: no acknowledgement, no answer.
pub(super) fn drop_incoming(socket: &impl AsRawFd) -> io::Result<()> {
    // BPF_RET | BPF_K with 0: keep no byte.
    let mut program = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Ends [`drop_incoming`].
pub(super) fn take_incoming(socket: &impl AsRawFd) -> io::Result<()> {
    match set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

/// Waits until one of the descriptors is ready for what it is asked, or `timeout` is over; an asked-for 0 still tells errors.
pub(super) fn poll(wanted: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    // Rounded up, or a wait of less than a millisecond would be a spin.
    let millis = timeout.map_or(-1, |t| i32::try_from(t.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
    let count = libc::nfds_t::try_from(wanted.len()).unwrap_or(0);
    // SAFETY: the kernel writes only into the slice, whose length it is given.
    let result = unsafe { libc::poll(wanted.as_mut_ptr(), count, millis) };
    match result {
        -1 if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted => {
            Err(io::Error::last_os_error())
        }
        _ => Ok(()),
    }
}
