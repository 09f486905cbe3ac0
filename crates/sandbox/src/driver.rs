//! The two ends of a run inside the guest: the text that starts it, and the report it leaves.

use crate::outcome::{Exception, Status};

/// The Python side, compiled into the snapshot.
pub const SOURCE: &str = include_str!("guest/driver.py");

/// What a run evaluates. All it does is in the driver; the code waits in a file of the host.
pub const RUN: &str = "import _torl_driver; _torl_driver.run()";

/// The bytes the driver reads: the seed, then the code.
pub fn input(seed: u64, code: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + code.len());
    bytes.extend_from_slice(&seed.to_le_bytes());
    bytes.extend_from_slice(code);
    bytes
}

/// The status a report claims. The guest can claim what it likes: only about itself.
pub fn status(report: &[u8]) -> Status {
    match report.first() {
        Some(0) => Status::Ok,
        Some(2) => Status::Memory,
        _ => Status::Error,
    }
}

/// The exception a report describes. Anything malformed is no exception.
pub fn exception(report: &[u8]) -> Option<Exception> {
    let mut rest = report.get(1..)?;
    let mut next = || -> Option<String> {
        let (length, tail) = rest.split_at_checked(4)?;
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        let (text, tail) = tail.split_at_checked(length)?;
        rest = tail;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let exception = Exception {
        type_name: next()?,
        line: next()?,
        traceback: next()?,
    };
    (!exception.type_name.is_empty()).then_some(exception)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: u8, texts: [&[u8]; 3]) -> Vec<u8> {
        let mut bytes = vec![kind];
        for text in texts {
            bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
            bytes.extend_from_slice(text);
        }
        bytes
    }

    #[test]
    fn a_report_names_status_and_exception() {
        let bytes = report(
            1,
            [b"KeyError", b"KeyError: 'x'", b"Traceback\nKeyError: 'x'\n"],
        );
        assert_eq!(status(&bytes), Status::Error);
        let exception = exception(&bytes).unwrap();
        assert_eq!(exception.type_name, "KeyError");
        assert_eq!(exception.line, "KeyError: 'x'");
        assert_eq!(exception.traceback, "Traceback\nKeyError: 'x'\n");
    }

    #[test]
    fn a_run_without_a_report_is_an_error() {
        assert_eq!(status(b""), Status::Error);
        assert_eq!(exception(b""), None);
    }

    #[test]
    fn every_cut_of_a_report_is_read_without_panic() {
        let bytes = report(2, [b"MemoryError", b"MemoryError", b"\xff\xfe"]);
        for length in 0..bytes.len() {
            assert_eq!(exception(&bytes[..length]), None);
        }
        let mut lying = bytes.clone();
        lying[1..5].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(exception(&lying), None);
        assert_eq!(exception(&bytes).unwrap().traceback, "\u{fffd}\u{fffd}");
    }
}
