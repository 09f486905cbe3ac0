//! The host's side of the driver: the text that starts a run inside the guest, and the report that it leaves.

use crate::outcome::{Exception, Status};
use crate::request::Request;

/// The Python side, compiled into the snapshot.
pub const SOURCE: &str = include_str!("driver.py");

/// The text of the turn that is a run. The driver does all the work; the code is in a file of the host.
pub const RUN: &str = "run";

/// Flags of the input: the value of the last statement is requested; the run belongs to a session.
const VALUE_WANTED: u8 = 1 << 0;
const IN_SESSION: u8 = 1 << 1;

/// Returns the driver's input: the seed, the flags, then the code.
pub fn input(request: &Request) -> Vec<u8> {
    let mut flags = 0;
    if request.value {
        flags |= VALUE_WANTED;
    }
    if request.session.is_some() {
        flags |= IN_SESSION;
    }
    let mut bytes = Vec::with_capacity(9 + request.code.len());
    bytes.extend_from_slice(&request.seed.to_le_bytes());
    bytes.push(flags);
    bytes.extend_from_slice(&request.code);
    bytes
}

/// Returns the status in a report. The guest may forge it, but only for itself.
pub fn status(report: &[u8]) -> Status {
    match report.first() {
        Some(0) => Status::Ok,
        Some(2) => Status::Memory,
        _ => Status::Error,
    }
}

/// Returns the exception in a report. A malformed one is ignored.
pub fn exception(report: &[u8]) -> Option<Exception> {
    let mut texts = Texts(report.get(1..)?);
    let exception = Exception {
        type_name: texts.next()?,
        line: texts.next()?,
        traceback: texts.next()?,
    };
    (!exception.type_name.is_empty()).then_some(exception)
}

/// Returns the value of the last statement, if the report has one after the exception's texts.
pub fn value(report: &[u8]) -> Option<String> {
    Texts(report.get(1..)?).nth(3)
}

/// Length-prefixed texts, up to the first incomplete one.
struct Texts<'a>(&'a [u8]);

impl Iterator for Texts<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let (length, rest) = self.0.split_at_checked(4)?;
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        let (text, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: u8, texts: &[&[u8]]) -> Vec<u8> {
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
            &[b"KeyError", b"KeyError: 'x'", b"Traceback\nKeyError: 'x'\n"],
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
        assert_eq!((exception(b""), value(b"")), (None, None));
    }

    #[test]
    fn every_cut_of_a_report_is_read_without_panic() {
        let bytes = report(2, &[b"MemoryError", b"MemoryError", b"\xff\xfe"]);
        for length in 0..bytes.len() {
            assert_eq!(exception(&bytes[..length]), None);
        }
        let mut lying = bytes.clone();
        lying[1..5].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(exception(&lying), None);
        assert_eq!(exception(&bytes).unwrap().traceback, "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_value_follows_the_texts_of_the_exception() {
        assert_eq!(value(&report(0, &[b"", b"", b""])), None);
        assert_eq!(
            value(&report(0, &[b"", b"", b"", b""])).as_deref(),
            Some("")
        );
        let bytes = report(0, &[b"", b"", b"", b"[1, 2]"]);
        assert_eq!(
            (value(&bytes).as_deref(), exception(&bytes)),
            (Some("[1, 2]"), None)
        );
        for length in 0..bytes.len() {
            assert_eq!(value(&bytes[..length]), None);
        }
    }

    #[test]
    fn the_input_states_whether_a_value_is_requested() {
        let mut request = Request {
            code: b"x".to_vec(),
            seed: 258,
            ..Request::default()
        };
        assert_eq!(input(&request), b"\x02\x01\0\0\0\0\0\0\0x");
        request.value = true;
        assert_eq!(input(&request), b"\x02\x01\0\0\0\0\0\0\x01x");
    }
}
