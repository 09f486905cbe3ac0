//! What the pool and its workers say to each other: frames of a four-byte length and a body, over one socket.
//!
//! Both ends run the same build on the same machine, so the format has no version. The pool still checks every length:
//! a worker has run untrusted code.

use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::engine::{ImageLayout, Request};
use crate::guest::Prepared;
use crate::limits::Limits;
use crate::outcome::{Exception, Outcome, Status};

/// No frame is longer; a longer one is a broken peer.
const FRAME_LIMIT: usize = 1 << 30;

/// What a worker is told.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// Load this guest and serve runs of it. Answered by `Ready`.
    Serve(Prepared),
    /// Build the guest in `artifacts` into the cache at `cache`. Answered by `Progress`, then `Ready`.
    Prepare { artifacts: PathBuf, cache: PathBuf },
    /// Answered by `Done`.
    Run(Request),
}

/// What a worker answers.
#[derive(Debug, PartialEq)]
pub enum Reply {
    Ready,
    Progress {
        stage: String,
        fraction: f64,
    },
    Done(Outcome),
    /// The host side of the worker is broken; it ends after this.
    Failed(String),
}

pub fn write_frame(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len())
        .ok()
        .filter(|&length| length as usize <= FRAME_LIMIT)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))?;
    // One write for a small message: the peer wakes once.
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(body);
    stream.write_all(&frame)
}

pub fn read_frame(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0u8; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > FRAME_LIMIT {
        return Err(malformed());
    }
    let mut body = Vec::new();
    stream.take(length as u64).read_to_end(&mut body)?;
    if body.len() == length {
        Ok(body)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a malformed message")
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn number(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn duration(&mut self, value: Duration) -> &mut Self {
        self.number(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    fn path(&mut self, value: &Path) -> &mut Self {
        self.bytes(value.as_os_str().as_bytes())
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> io::Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(
            self.take(8)?.try_into().expect("eight bytes"),
        ))
    }

    fn duration(&mut self) -> io::Result<Duration> {
        self.number().map(Duration::from_nanos)
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| malformed())?;
        self.take(length)
    }

    fn text(&mut self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn path(&mut self) -> io::Result<PathBuf> {
        Ok(PathBuf::from(std::ffi::OsString::from_vec(
            self.bytes()?.to_vec(),
        )))
    }

    fn end<T>(self, value: T) -> io::Result<T> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(malformed())
        }
    }
}

impl Order {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Serve(prepared) => writer
                .byte(0)
                .path(&prepared.module)
                .path(&prepared.image)
                .path(&prepared.archive)
                .number(prepared.layout.bytes)
                .number(prepared.layout.stack_pointer.into()),
            Self::Prepare { artifacts, cache } => writer.byte(1).path(artifacts).path(cache),
            Self::Run(Request { code, seed, limits }) => writer
                .byte(2)
                .number(*seed)
                .duration(limits.cpu_time)
                .duration(limits.wall_time)
                .number(limits.memory_bytes)
                .number(limits.output_bytes)
                .bytes(code),
        };
        writer.0
    }

    pub fn decode(body: &[u8]) -> io::Result<Self> {
        let mut reader = Reader(body);
        let order = match reader.byte()? {
            0 => Self::Serve(Prepared {
                module: reader.path()?,
                image: reader.path()?,
                archive: reader.path()?,
                layout: ImageLayout {
                    bytes: reader.number()?,
                    stack_pointer: u32::try_from(reader.number()?).map_err(|_| malformed())?,
                },
            }),
            1 => Self::Prepare {
                artifacts: reader.path()?,
                cache: reader.path()?,
            },
            2 => {
                let seed = reader.number()?;
                let limits = Limits {
                    cpu_time: reader.duration()?,
                    wall_time: reader.duration()?,
                    memory_bytes: reader.number()?,
                    output_bytes: reader.number()?,
                };
                Self::Run(Request {
                    code: reader.bytes()?.to_vec(),
                    seed,
                    limits,
                })
            }
            _ => return Err(malformed()),
        };
        reader.end(order)
    }
}

impl Reply {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Ready => {
                writer.byte(0);
            }
            Self::Progress { stage, fraction } => {
                writer
                    .byte(1)
                    .bytes(stage.as_bytes())
                    .number(fraction.to_bits());
            }
            Self::Done(outcome) => {
                writer
                    .byte(2)
                    .byte(outcome.status as u8)
                    .bytes(&outcome.stdout)
                    .bytes(&outcome.stderr)
                    .duration(outcome.cpu_time)
                    .duration(outcome.wall_time)
                    .number(outcome.peak_memory_bytes);
                if let Some(exception) = &outcome.exception {
                    for text in [&exception.type_name, &exception.line, &exception.traceback] {
                        writer.bytes(text.as_bytes());
                    }
                }
            }
            Self::Failed(message) => {
                writer.byte(3).bytes(message.as_bytes());
            }
        }
        writer.0
    }

    pub fn decode(body: &[u8]) -> io::Result<Self> {
        let mut reader = Reader(body);
        let reply = match reader.byte()? {
            0 => Self::Ready,
            1 => Self::Progress {
                stage: reader.text()?,
                fraction: f64::from_bits(reader.number()?),
            },
            2 => Self::Done(Outcome {
                status: Status::from_byte(reader.byte()?).ok_or_else(malformed)?,
                stdout: reader.bytes()?.to_vec(),
                stderr: reader.bytes()?.to_vec(),
                cpu_time: reader.duration()?,
                wall_time: reader.duration()?,
                peak_memory_bytes: reader.number()?,
                exception: if reader.0.is_empty() {
                    None
                } else {
                    Some(Exception {
                        type_name: reader.text()?,
                        line: reader.text()?,
                        traceback: reader.text()?,
                    })
                },
            }),
            3 => Self::Failed(reader.text()?),
            _ => return Err(malformed()),
        };
        reader.end(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(exception: Option<Exception>) -> Outcome {
        Outcome {
            status: Status::Error,
            stdout: b"a\0\xff".to_vec(),
            stderr: Vec::new(),
            exception,
            cpu_time: Duration::from_nanos(1),
            wall_time: Duration::from_secs(2),
            peak_memory_bytes: 3,
        }
    }

    fn orders() -> Vec<Order> {
        vec![
            Order::Serve(Prepared {
                module: "/a".into(),
                image: "/b".into(),
                archive: "/c".into(),
                layout: ImageLayout {
                    bytes: 65536,
                    stack_pointer: 7,
                },
            }),
            Order::Prepare {
                artifacts: "/x".into(),
                cache: "".into(),
            },
            Order::Run(Request {
                code: b"print()".to_vec(),
                seed: u64::MAX,
                limits: Limits::default(),
            }),
        ]
    }

    fn replies() -> Vec<Reply> {
        let exception = Exception {
            type_name: "E".into(),
            line: "E: é".into(),
            traceback: String::new(),
        };
        vec![
            Reply::Ready,
            Reply::Progress {
                stage: "compile".into(),
                fraction: 0.25,
            },
            Reply::Done(outcome(None)),
            Reply::Done(outcome(Some(exception))),
            Reply::Failed("no guest".into()),
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for order in orders() {
            assert_eq!(Order::decode(&order.encode()).unwrap(), order);
        }
        for reply in replies() {
            assert_eq!(Reply::decode(&reply.encode()).unwrap(), reply);
        }
    }

    #[test]
    fn a_cut_or_longer_message_is_refused() {
        for body in orders().iter().map(Order::encode) {
            for length in 0..body.len() {
                assert!(Order::decode(&body[..length]).is_err());
            }
            assert!(Order::decode(&[body, vec![0]].concat()).is_err());
        }
        for reply in replies() {
            let body = reply.encode();
            for length in 0..body.len() {
                // An outcome without its exception is an outcome.
                let cut = Reply::decode(&body[..length]);
                assert!(cut.is_err() || cut.unwrap() == Reply::Done(outcome(None)));
            }
            assert!(Reply::decode(&[body, vec![0]].concat()).is_err());
        }
    }

    #[test]
    fn a_frame_that_claims_too_much_is_refused_without_allocating_it() {
        let mut bytes: &[u8] = &u32::MAX.to_le_bytes();
        assert_eq!(
            read_frame(&mut bytes).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        let mut short: &[u8] = &[9, 0, 0, 0, 1];
        assert_eq!(
            read_frame(&mut short).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
