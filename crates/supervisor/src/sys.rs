//! The two system calls that have no wrapper which fits.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Makes every descriptor from 3 on close at the next exec.
pub(crate) fn close_inherited_at_exec() -> io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
    // SAFETY: it reads no memory of ours, and changes a flag of descriptors, closing none.
    let result = unsafe { libc::close_range(3, libc::c_uint::MAX, flags) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Uid and pid of the process at the other end; its pid is 0 where it cannot be seen from here.
pub(crate) fn peer_credentials(socket: impl AsFd) -> io::Result<(u32, i32)> {
    let mut found = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: `found` is a whole `ucred` of `length` bytes, which any bytes fill validly, and both
    // outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok((found.uid, found.pid)),
        _ => Err(io::Error::last_os_error()),
    }
}
