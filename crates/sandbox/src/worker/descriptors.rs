//! Transfer of open files between processes, over the socket between them.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Maximum number of files in one message.
const MAX_FILES: usize = 3;

/// Buffer for the head of a control message and its descriptors, with the required alignment.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Returns the size of a control message with `count` descriptors in bytes.
fn space(count: usize) -> usize {
    // SAFETY: a computation.
    unsafe { libc::CMSG_SPACE((count * size_of::<libc::c_int>()) as u32) as usize }
}

/// Returns a message of one byte, to which the open files are attached.
fn message(
    byte: &mut u8,
    part: &mut libc::iovec,
    control: &mut Control,
    length: usize,
) -> libc::msghdr {
    assert!(length <= control.0.len());
    part.iov_base = std::ptr::from_mut(byte).cast();
    part.iov_len = 1;
    // SAFETY: a zeroed header is a valid one.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = length as _;
    header
}

fn empty_part() -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    }
}

/// Sends the files as the next byte of the stream.
pub fn send(stream: &UnixStream, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(files.len() <= MAX_FILES);
    let (mut byte, mut part, mut control) = (0, empty_part(), Control([0; 64]));
    let length = if files.is_empty() {
        0
    } else {
        space(files.len())
    };
    let header = message(&mut byte, &mut part, &mut control, length);
    // SAFETY: the header's parts live until the call returns; a control message of that length fits the files.
    let sent = unsafe {
        if let Some(control) = libc::CMSG_FIRSTHDR(&raw const header).as_mut() {
            control.cmsg_level = libc::SOL_SOCKET;
            control.cmsg_type = libc::SCM_RIGHTS;
            control.cmsg_len = libc::CMSG_LEN(size_of_val(files) as u32) as _;
            let data = libc::CMSG_DATA(control).cast::<libc::c_int>();
            for (index, file) in files.iter().enumerate() {
                data.add(index).write_unaligned(file.as_raw_fd());
            }
        }
        libc::sendmsg(stream.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
    };
    if sent == 1 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Receives the files sent by `send`.
///
/// # Errors
/// A system error; the other end has closed; a file was lost for lack of descriptors.
pub fn receive(stream: &UnixStream) -> io::Result<Vec<File>> {
    let (mut byte, mut part, mut control) = (0, empty_part(), Control([0; 64]));
    let mut header = message(&mut byte, &mut part, &mut control, space(MAX_FILES));
    let mut files = Vec::new();
    // SAFETY: the header's parts live until the call returns; received descriptors belong to this process.
    unsafe {
        let received = libc::recvmsg(stream.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC);
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut next = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(control) = next.as_ref() {
            if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
                let bytes = control.cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(control).cast::<libc::c_int>();
                for index in 0..bytes / size_of::<libc::c_int>() {
                    let descriptor = OwnedFd::from_raw_fd(data.add(index).read_unaligned());
                    files.push(File::from(descriptor));
                }
            }
            next = libc::CMSG_NXTHDR(&raw const header, control);
        }
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    if header.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn files_arrive_in_order_and_the_next_bytes_are_kept() {
        let (here, there) = UnixStream::pair().unwrap();
        let path = std::env::temp_dir().join(format!("torl-descriptors-{}", std::process::id()));
        for count in 0..=MAX_FILES {
            let files: Vec<_> = (0..count)
                .map(|index| {
                    std::fs::write(&path, [index as u8]).unwrap();
                    let file = File::open(&path).unwrap();
                    std::fs::remove_file(&path).unwrap();
                    file
                })
                .collect();
            let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            send(&here, &borrowed).unwrap();
            (&here).write_all(b"next").unwrap();
            let received = receive(&there).unwrap();
            assert_eq!(received.len(), count);
            for (index, mut file) in received.into_iter().enumerate() {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes, [index as u8]);
            }
            let mut next = [0; 4];
            (&there).read_exact(&mut next).unwrap();
            assert_eq!(&next, b"next");
        }
        drop(here);
        assert_eq!(
            receive(&there).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
