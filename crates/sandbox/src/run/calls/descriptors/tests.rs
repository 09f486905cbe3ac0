//! Lists of buffers, streams, listings.

use super::*;
use crate::files::OpenOptions;
use crate::limits::Limits;
use crate::request::Request;
use crate::run::host::state_for_tests;

fn state(output_bytes: u64, stdin: &[u8]) -> HostState {
    state_for_tests(&Request {
        limits: Limits {
            output_bytes,
            ..Limits::default()
        },
        stdin: stdin.to_vec(),
        ..Request::default()
    })
}

/// A memory with a list of one buffer at 0: `length` bytes at 64.
fn memory(length: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; 256];
    bytes[0] = 64;
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[64..70].copy_from_slice(b"output");
    bytes
}

fn write_to(
    memory: &mut GuestMemory<'_>,
    state: &mut HostState,
    fd: i32,
) -> Result<Checked<()>, Stop> {
    write(memory, state, (fd, None), (0, 1), 32)
}

#[test]
fn output_is_kept_up_to_its_limit() {
    let mut state = state(8, b"");
    let mut bytes = memory(6);
    let mut memory = GuestMemory(&mut bytes);
    assert_eq!(write_to(&mut memory, &mut state, 1), Ok(Ok(())));
    assert_eq!(memory.read_u32(32), Ok(6));
    assert_eq!(write_to(&mut memory, &mut state, 2), Err(Stop::Output));
    assert_eq!(state.output().stdout, b"output");
    assert_eq!(state.output().stderr, b"ou");
    assert_eq!(write_to(&mut memory, &mut state, 0), Ok(Err(errno::BADF)));
    assert_eq!(write_to(&mut memory, &mut state, 3), Ok(Err(errno::BADF)));
}

#[test]
fn a_file_is_read_in_pieces_to_its_end() {
    let mut state = state(0, b"all of the standard input");
    let options = OpenOptions {
        read: true,
        ..OpenOptions::default()
    };
    let archive = state.files.open(3, b"python315.zip", options, 0).unwrap();
    for (fd, content) in [
        (archive, &b"the standard library"[..]),
        (0, b"all of the standard input"),
    ] {
        let mut bytes = memory(7);
        let mut memory = GuestMemory(&mut bytes);
        let mut seen = Vec::new();
        loop {
            read(&mut memory, &mut state, (fd, None), (0, 1), 32)
                .unwrap()
                .unwrap();
            let count = memory.read_u32(32).unwrap() as usize;
            if count == 0 {
                break;
            }
            seen.extend_from_slice(memory.slice(64, count).unwrap());
        }
        assert_eq!(seen, content);
    }
}

#[test]
fn a_list_is_written_and_read_from_buffer_to_buffer() {
    let mut state = state(0, b"");
    let options = OpenOptions {
        read: true,
        write: true,
        create: true,
        ..OpenOptions::default()
    };
    let fd = state.files.open(4, b"work/x", options, 0).unwrap();
    let mut bytes = memory(6);
    bytes[8..16].copy_from_slice(&[66, 0, 0, 0, 2, 0, 0, 0]);
    let mut memory = GuestMemory(&mut bytes);
    write(&mut memory, &mut state, (fd, None), (0, 2), 32)
        .unwrap()
        .unwrap();
    assert_eq!(memory.read_u32(32), Ok(8));
    memory.write(64, b"------").unwrap();
    read(&mut memory, &mut state, (fd, Some(1)), (0, 1), 32)
        .unwrap()
        .unwrap();
    assert_eq!(memory.slice(64, 6), Ok(&b"utputt"[..]));
    for count in [-1, 1025] {
        let answer = write(&mut memory, &mut state, (fd, None), (0, count), 32);
        assert_eq!(answer, Ok(Err(errno::INVAL)));
    }
    let answer = write(&mut memory, &mut state, (fd, Some(-1)), (0, 1), 32);
    assert_eq!(answer, Ok(Err(errno::INVAL)));
    for (at, fd) in [(None, 99), (Some(0), 1), (None, 0)] {
        let answer = write(&mut memory, &mut state, (fd, at), (0, 0), 32).unwrap();
        assert!(answer.is_err(), "a write of nothing to {fd}");
    }
}

#[test]
fn moving_bytes_ends_with_the_time() {
    let mut state = state(100, b"input");
    let mut bytes = memory(6);
    let mut memory = GuestMemory(&mut bytes);
    state.expire();
    assert_eq!(write_to(&mut memory, &mut state, 1), Err(Stop::Expired));
    let answer = read(&mut memory, &mut state, (0, None), (0, 1), 32);
    assert_eq!(answer, Err(Stop::Expired));
}

#[test]
fn a_listing_fills_its_buffer_to_the_last_byte() {
    let mut state = state(0, b"");
    for name in [&b"work/first"[..], b"work/second"] {
        state.files.make_directory(4, name, 0).unwrap();
    }
    let options = OpenOptions {
        read: true,
        ..OpenOptions::default()
    };
    let fd = state.files.open(4, b"work", options, 0).unwrap();
    let whole = 2 * ENTRY_BYTES + 11;
    for length in 0..100 {
        let mut bytes = vec![0xaa; 256];
        let mut memory = GuestMemory(&mut bytes);
        read_directory(&mut memory, &mut state, fd, (64, length), 0, 0).unwrap();
        assert_eq!(memory.read_u32(0), Ok(length.min(whole) as u32));
        assert!(
            bytes[64 + length.min(whole)..]
                .iter()
                .all(|&byte| byte == 0xaa)
        );
        if length > whole {
            assert_eq!(&bytes[64 + ENTRY_BYTES..][..5], b"first");
            assert_eq!(&bytes[64 + whole - 6..][..6], b"second");
        }
    }
}
