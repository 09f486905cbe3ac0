//! The protocol between the pool and its workers: frames of a four-byte length and a body, over one socket.
//!
//! The pool checks every length: a worker has run untrusted code.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::SandboxError;
use crate::guest::Prepared;
use crate::limits::Limits;
use crate::outcome::{Exception, Outcome, Status};
use crate::request::Request;
use crate::run::instance::ImageLayout;
use crate::run::runner::{Reuse, Reusing};
use crate::session::SessionState;
use crate::wire::{Reader, Writer, malformed};
use crate::worker::confine::Confinement;

/// Maximum size of a frame; a longer one is a protocol error.
const FRAME_LIMIT: usize = 1 << 30;

/// A message up to this size is written at once, so that the peer wakes once; a larger one is not copied for that.
pub const SMALL_FRAME: usize = 64 << 10;

/// A command to a worker.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Load this guest, confine the process and serve runs of it. Answered by `Ready`.
    Serve { prepared: Prepared, reuse: Reuse },
    /// Build the guest in `artifacts` into the cache at `cache`. Answered by `Progress`, then `Prepared`.
    Prepare { artifacts: PathBuf, cache: PathBuf },
    /// Answered by `Done`.
    Run(Request),
}

/// A reply of a worker.
#[derive(Debug, PartialEq)]
pub enum Reply {
    Ready(Reusing, Confinement),
    Prepared,
    Progress {
        stage: String,
        fraction: f64,
    },
    Done(Box<Outcome>),
    /// Like `Done`, for a run that could only be ended with its worker, which then exits. With the end of the last
    /// complete statement in the code of a session's run, in bytes.
    Last(Box<Outcome>, u32),
    /// The host side of the worker failed; it then exits.
    Failed(SandboxError),
}

/// Returns the header of a frame.
pub fn frame_head(body: &[u8]) -> io::Result<[u8; 4]> {
    u32::try_from(body.len())
        .ok()
        .filter(|&length| length as usize <= FRAME_LIMIT)
        .map(u32::to_le_bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))
}

pub fn write_frame(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let head = frame_head(body)?;
    if body.len() > SMALL_FRAME {
        stream.write_all(&head)?;
        return stream.write_all(body);
    }
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&head);
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

/// Removes the first frame from the received bytes, if it is complete. Their buffer goes with it: one that has grown to
/// the size of a large frame is not kept.
pub fn take_frame(received: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let Some((length, rest)) = received.split_first_chunk() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > FRAME_LIMIT {
        return Err(malformed());
    }
    if rest.len() < length {
        return Ok(None);
    }
    let rest = received.split_off(4 + length);
    let mut body = std::mem::replace(received, rest);
    body.drain(..4);
    Ok(Some(body))
}

fn encode_session(session: Option<&SessionState>, writer: &mut Writer) {
    writer.flag(session.is_some());
    if let Some(state) = session {
        writer
            .number(state.memory_bytes)
            .bytes(&state.memory)
            .bytes(&state.host);
    }
}

fn encode_confinement(confinement: &Confinement, writer: &mut Writer) {
    writer
        .number(confinement.landlock.map_or(0, u64::from))
        .flag(confinement.seccomp)
        .number(confinement.missing.len() as u64);
    for reason in &confinement.missing {
        writer.bytes(reason.as_bytes());
    }
}

fn decode_confinement(reader: &mut Reader<'_>) -> io::Result<Confinement> {
    let landlock = u32::try_from(reader.number()?).map_err(|_| malformed())?;
    let mut confinement = Confinement {
        landlock: Some(landlock).filter(|&version| version > 0),
        seccomp: reader.flag()?,
        missing: Vec::new(),
    };
    for _ in 0..reader.number()? {
        confinement.missing.push(reader.text()?);
    }
    Ok(confinement)
}

fn decode_session(reader: &mut Reader<'_>) -> io::Result<Option<Arc<SessionState>>> {
    if !reader.flag()? {
        return Ok(None);
    }
    Ok(Some(Arc::new(SessionState {
        memory_bytes: reader.number()?,
        memory: reader.bytes()?.to_vec(),
        host: reader.bytes()?.to_vec(),
    })))
}

impl Command {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Serve { prepared, reuse } => {
                writer
                    .byte(0)
                    .byte(reuse.enabled.into())
                    .number(reuse.verify_every)
                    .path(&prepared.module)
                    .path(&prepared.image)
                    .path(&prepared.archive);
                encode_layout(&prepared.layout, &mut writer);
            }
            Self::Prepare { artifacts, cache } => {
                writer.byte(1).path(artifacts).path(cache);
            }
            Self::Run(request) => return Self::encode_run(request),
        };
        writer.0
    }

    /// Encodes `Command::Run(request)` from a borrowed request.
    pub fn encode_run(request: &Request) -> Vec<u8> {
        let mut writer = Writer::default();
        encode_request(request, writer.byte(2));
        writer.0
    }

    pub fn decode(body: &[u8]) -> io::Result<Self> {
        let mut reader = Reader(body);
        let command = match reader.byte()? {
            0 => Self::Serve {
                reuse: Reuse {
                    enabled: reader.flag()?,
                    verify_every: reader.number()?,
                },
                prepared: Prepared {
                    module: reader.path()?,
                    image: reader.path()?,
                    archive: reader.path()?,
                    layout: decode_layout(&mut reader)?,
                },
            },
            1 => Self::Prepare {
                artifacts: reader.path()?,
                cache: reader.path()?,
            },
            2 => Self::Run(decode_request(&mut reader)?),
            _ => return Err(malformed()),
        };
        reader.end(command)
    }
}

fn encode_layout(layout: &ImageLayout, writer: &mut Writer) {
    writer.number(layout.bytes);
    for number in layout.numbers() {
        writer.number(number.into());
    }
}

fn decode_layout(reader: &mut Reader<'_>) -> io::Result<ImageLayout> {
    let bytes = reader.number()?;
    let mut numbers = [0; ImageLayout::NUMBERS];
    for number in &mut numbers {
        *number = u32::try_from(reader.number()?).map_err(|_| malformed())?;
    }
    ImageLayout::of_numbers(bytes, numbers).ok_or_else(malformed)
}

fn encode_request<'a>(request: &Request, writer: &'a mut Writer) -> &'a mut Writer {
    let limits = &request.limits;
    writer
        .bytes(&request.code)
        .number(request.seed)
        .duration(limits.cpu_time)
        .duration(limits.wall_time)
        .number(limits.memory_bytes)
        .number(limits.output_bytes)
        .number(limits.files_bytes)
        .bytes(&request.stdin)
        .flag(request.return_files)
        .flag(request.value);
    encode_session(request.session.as_deref(), writer);
    writer.number(request.files.len() as u64);
    for (path, bytes) in &request.files {
        writer.bytes(path.as_bytes()).bytes(bytes);
    }
    writer
}

fn decode_request(reader: &mut Reader<'_>) -> io::Result<Request> {
    let mut request = Request {
        code: reader.bytes()?.to_vec(),
        seed: reader.number()?,
        limits: Limits {
            cpu_time: reader.duration()?,
            wall_time: reader.duration()?,
            memory_bytes: reader.number()?,
            output_bytes: reader.number()?,
            files_bytes: reader.number()?,
        },
        stdin: reader.bytes()?.to_vec(),
        return_files: reader.flag()?,
        value: reader.flag()?,
        session: decode_session(reader)?,
        files: Vec::new(),
        caller: 0,
    };
    for _ in 0..reader.number()? {
        let path = reader.text()?;
        request.files.push((path, reader.bytes()?.to_vec()));
    }
    Ok(request)
}

fn encode_outcome(outcome: &Outcome, writer: &mut Writer) {
    writer
        .byte(outcome.status as u8)
        .bytes(&outcome.stdout)
        .bytes(&outcome.stderr)
        .duration(outcome.cpu_time)
        .duration(outcome.wall_time)
        .number(outcome.peak_memory_bytes)
        .flag(outcome.starved)
        .flag(outcome.exception.is_some());
    if let Some(exception) = &outcome.exception {
        for text in [&exception.type_name, &exception.line, &exception.traceback] {
            writer.bytes(text.as_bytes());
        }
    }
    writer.flag(outcome.value.is_some());
    if let Some(value) = &outcome.value {
        writer.bytes(value.as_bytes());
    }
    encode_session(outcome.session.as_deref(), writer);
    writer.number(outcome.files.len() as u64);
    for (path, bytes) in &outcome.files {
        writer.bytes(path).bytes(bytes);
    }
}

fn decode_outcome(reader: &mut Reader<'_>) -> io::Result<Outcome> {
    let mut outcome = Outcome {
        status: Status::from_byte(reader.byte()?).ok_or_else(malformed)?,
        stdout: reader.bytes()?.to_vec(),
        stderr: reader.bytes()?.to_vec(),
        cpu_time: reader.duration()?,
        wall_time: reader.duration()?,
        peak_memory_bytes: reader.number()?,
        starved: reader.flag()?,
        exception: None,
        value: None,
        session: None,
        files: Vec::new(),
    };
    if reader.flag()? {
        outcome.exception = Some(Exception {
            type_name: reader.text()?,
            line: reader.text()?,
            traceback: reader.text()?,
        });
    }
    if reader.flag()? {
        outcome.value = Some(reader.text()?);
    }
    outcome.session = decode_session(reader)?;
    for _ in 0..reader.number()? {
        let path = reader.bytes()?.to_vec();
        // Callers that write these files must be able to trust their paths.
        if !is_relative(&path) {
            return Err(malformed());
        }
        outcome.files.push((path, reader.bytes()?.to_vec()));
    }
    Ok(outcome)
}

/// Whether a path stays below the directory that it is relative to, and is not the directory.
fn is_relative(path: &[u8]) -> bool {
    !path.contains(&0)
        && path
            .split(|&byte| byte == b'/')
            .all(|part| !matches!(part, b"" | b"." | b".."))
}

impl Reply {
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Self::Ready(Ok(()), confinement) => {
                encode_confinement(confinement, writer.byte(0));
            }
            Self::Ready(Err(reason), confinement) => {
                encode_confinement(confinement, writer.byte(4).bytes(reason.as_bytes()));
            }
            Self::Prepared => {
                writer.byte(5);
            }
            Self::Progress { stage, fraction } => {
                writer
                    .byte(1)
                    .bytes(stage.as_bytes())
                    .number(fraction.to_bits());
            }
            Self::Done(outcome) => encode_outcome(outcome, writer.byte(2)),
            Self::Last(outcome, progress) => {
                encode_outcome(outcome, writer.byte(6).number((*progress).into()));
            }
            Self::Failed(error) => {
                writer
                    .byte(3)
                    .bytes(error.to_string().as_bytes())
                    .flag(error.is_fatal());
            }
        }
        writer.0
    }

    pub fn decode(body: &[u8]) -> io::Result<Self> {
        let mut reader = Reader(body);
        let reply = match reader.byte()? {
            0 => Self::Ready(Ok(()), decode_confinement(&mut reader)?),
            4 => Self::Ready(Err(reader.text()?), decode_confinement(&mut reader)?),
            5 => Self::Prepared,
            1 => Self::Progress {
                stage: reader.text()?,
                fraction: f64::from_bits(reader.number()?),
            },
            2 => Self::Done(Box::new(decode_outcome(&mut reader)?)),
            6 => {
                let progress = u32::try_from(reader.number()?).map_err(|_| malformed())?;
                Self::Last(Box::new(decode_outcome(&mut reader)?), progress)
            }
            3 => {
                let error = SandboxError::new(reader.text()?);
                Self::Failed(if reader.flag()? { error.fatal() } else { error })
            }
            _ => return Err(malformed()),
        };
        reader.end(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn outcome(exception: Option<Exception>) -> Outcome {
        Outcome {
            status: Status::Error,
            stdout: b"a\0\xff".to_vec(),
            stderr: Vec::new(),
            exception,
            session: Some(Arc::new(SessionState {
                memory_bytes: 1,
                memory: vec![2, 3],
                host: vec![4],
            })),
            cpu_time: Duration::from_nanos(1),
            wall_time: Duration::from_secs(2),
            peak_memory_bytes: 3,
            starved: true,
            value: Some("[1]".into()),
            files: vec![
                (b"a/b".to_vec(), b"\0".to_vec()),
                (b"\xff".to_vec(), Vec::new()),
            ],
        }
    }

    fn commands() -> Vec<Command> {
        vec![
            Command::Serve {
                prepared: Prepared {
                    module: "/a".into(),
                    image: "/b".into(),
                    archive: "/c".into(),
                    layout: ImageLayout::of_numbers(65536, [7, 8, 1, 12, 2, 65532, 3]).unwrap(),
                },
                reuse: Reuse::default(),
            },
            Command::Prepare {
                artifacts: "/x".into(),
                cache: "".into(),
            },
            Command::Run(Request {
                code: b"print()".to_vec(),
                seed: u64::MAX,
                limits: Limits::default(),
                stdin: b"1\n".to_vec(),
                files: vec![
                    ("a/b.csv".into(), b"1,2".to_vec()),
                    ("c".into(), Vec::new()),
                ],
                return_files: true,
                value: true,
                session: None,
                caller: 0,
            }),
            Command::Run(Request {
                session: Some(Arc::default()),
                ..Request::default()
            }),
            Command::Run(Request::default()),
        ]
    }

    fn replies() -> Vec<Reply> {
        let confinement = Confinement {
            landlock: Some(7),
            seccomp: true,
            missing: vec!["memory limit: none".into()],
        };
        let exception = Exception {
            type_name: "E".into(),
            line: "E: é".into(),
            traceback: String::new(),
        };
        vec![
            Reply::Ready(Ok(()), Confinement::default()),
            Reply::Ready(Err("no kernel".into()), confinement),
            Reply::Prepared,
            Reply::Progress {
                stage: "compile".into(),
                fraction: 0.25,
            },
            Reply::Done(Box::new(outcome(None))),
            Reply::Done(Box::new(outcome(Some(exception)))),
            Reply::Last(Box::new(outcome(None)), 7),
            Reply::Failed(SandboxError::new("no guest")),
            Reply::Failed(SandboxError::new("differs").fatal()),
        ]
    }

    #[test]
    fn written_values_are_read_back() {
        for command in commands() {
            assert_eq!(Command::decode(&command.encode()).unwrap(), command);
        }
        for reply in replies() {
            assert_eq!(Reply::decode(&reply.encode()).unwrap(), reply);
        }
    }

    #[test]
    fn a_cut_or_longer_message_is_refused() {
        for body in commands().iter().map(Command::encode) {
            for length in 0..body.len() {
                assert!(Command::decode(&body[..length]).is_err());
            }
            assert!(Command::decode(&[body, vec![0]].concat()).is_err());
        }
        for reply in replies() {
            let body = reply.encode();
            for length in 0..body.len() {
                assert!(Reply::decode(&body[..length]).is_err());
            }
            assert!(Reply::decode(&[body, vec![0]].concat()).is_err());
        }
    }

    #[test]
    fn files_outside_of_the_run_directory_are_rejected() {
        for path in [
            "", "/a", "a/", "a//b", ".", "../a", "a/../b", "a/..", "a\0b",
        ] {
            let mut outcome = outcome(None);
            outcome.files.push((path.into(), Vec::new()));
            assert!(
                Reply::decode(&Reply::Done(Box::new(outcome)).encode()).is_err(),
                "{path}"
            );
        }
    }

    #[test]
    fn frames_of_all_sizes_are_read_as_they_were_written() {
        for size in [0, 1, SMALL_FRAME, SMALL_FRAME + 1] {
            let body = vec![7; size];
            let mut stream = Vec::new();
            write_frame(&mut stream, &body).unwrap();
            assert_eq!(read_frame(&mut &stream[..]).unwrap(), body);
        }
    }

    #[test]
    fn a_large_frame_is_taken_with_its_buffer() {
        let mut received = Vec::new();
        for body in [vec![7; 1 << 20], vec![8]] {
            write_frame(&mut received, &body).unwrap();
        }
        received.push(9);
        assert_eq!(take_frame(&mut received).unwrap(), Some(vec![7; 1 << 20]));
        assert!(received.capacity() < SMALL_FRAME, "{}", received.capacity());
        assert_eq!(take_frame(&mut received).unwrap(), Some(vec![8]));
        assert_eq!(take_frame(&mut received).unwrap(), None);
        assert_eq!(received, [9]);
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
