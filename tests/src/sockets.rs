//! TCP sockets of this machine as the kernel lists them (proc_net_tcp(5)).

use std::os::fd::AsRawFd;

use anyhow::Context;

/// A connection that is being asked for and not yet answered.
pub const SYN_SENT: u8 = 2;

/// One socket over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its own port.
    pub local: u16,
    /// The port of its peer.
    pub remote: u16,
    /// As in the kernel's `tcp_states.h`.
    pub state: u8,
    /// Bytes written and not yet acknowledged.
    pub unsent: usize,
    /// Bytes received and not yet read.
    pub unread: usize,
}

/// Makes the coming close of a socket a reset.
///
/// # Errors
/// It is no socket any more.
pub fn reset_on_close(socket: &impl AsRawFd) -> std::io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = libc::socklen_t::try_from(size_of_val(&linger)).unwrap_or(0);
    // SAFETY: the kernel reads `size` bytes of a live value of the option's type; the descriptor is open.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size,
        )
    };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// All of them.
///
/// # Errors
/// The list cannot be read.
pub fn all() -> anyhow::Result<Vec<Socket>> {
    let text = std::fs::read_to_string("/proc/net/tcp")?;
    text.lines().skip(1).map(|line| parse(line).with_context(|| line.to_owned())).collect()
}

/// Those whose peer's port is `port` and that are in `state`, or in any with `None`.
///
/// # Errors
/// The list cannot be read.
pub fn towards(port: u16, state: Option<u8>) -> anyhow::Result<Vec<Socket>> {
    let fits = |s: &Socket| s.remote == port && state.is_none_or(|state| s.state == state);
    Ok(all()?.into_iter().filter(fits).collect())
}

fn parse(line: &str) -> Option<Socket> {
    let mut fields = line.split_whitespace().skip(1);
    let mut port = || u16::from_str_radix(fields.next()?.split_once(':')?.1, 16).ok();
    let (local, remote) = (port()?, port()?);
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let (unsent, unread) = fields.next()?.split_once(':')?;
    let bytes = |hex: &str| usize::from_str_radix(hex, 16).ok();
    Some(Socket { local, remote, state, unsent: bytes(unsent)?, unread: bytes(unread)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_list_is_understood() {
        let line = "   1: 0100007F:1F90 0100007F:D431 02 0000000A:00000010 01:00000014 00000000     0        0 12345 1 0";
        let expected = Socket { local: 8080, remote: 54321, state: SYN_SENT, unsent: 10, unread: 16 };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("  sl  local_address"), None);
    }
}
