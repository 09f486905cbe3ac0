//! Fuzzing of the worker protocol and the host calls with arbitrary bytes: from libFuzzer in the targets in `fuzz/`,
//! random ones in the tests below.

use wasmtime::{Engine, Linker, Memory, MemoryType, Module, Store, Val, ValType};

use crate::files::Archive;
use crate::limits::Limits;
use crate::pinned::PinnedFile;
use crate::request::Request;
use crate::run::calls;
use crate::run::driver;
use crate::run::engine;
use crate::run::host::{HostState, Stop};
use crate::run::watchdog::Gate;
use crate::session::SessionState;
use crate::worker::protocol::{Command, Reply, read_frame, take_frame};

/// Decodes `bytes` as a frame, as a command and as a reply, and continues with the sessions in them. A decoded value
/// survives another round trip.
pub fn protocol(bytes: &[u8]) {
    let read = read_frame(&mut &*bytes).ok();
    let taken = take_frame(&mut bytes.to_vec()).ok().flatten();
    assert_eq!(read, taken);
    if let Some(body) = read {
        assert_eq!(body, bytes[4..4 + body.len()]);
    }
    if let Ok(command) = Command::decode(bytes) {
        assert_eq!(Command::decode(&command.encode()).unwrap(), command);
    }
    if let Ok(reply) = Reply::decode(bytes) {
        // Not compared as values: a fraction may be NaN.
        let encoded = reply.encode();
        assert_eq!(Reply::decode(&encoded).unwrap().encode(), encoded);
        if let Reply::Done(outcome) = reply
            && let Some(session) = &outcome.session
        {
            continue_session(session);
        }
    }
}

/// Continues a session. A compromised worker may have fabricated the state.
fn continue_session(session: &SessionState) {
    let image = vec![0; 1 << 12];
    let mut memory = vec![0; 1 << 13];
    if session.apply(&mut memory).is_ok() {
        // The same state in other words: blocks may have been listed twice, or be unchanged.
        let whole = 0..image.len();
        let whole = std::slice::from_ref(&whole);
        let captured =
            SessionState::capture(&memory, &image, whole, Vec::new(), usize::MAX).unwrap();
        let mut again = vec![0; memory.len()];
        captured.apply(&mut again).unwrap();
        assert_eq!(again, memory);
    }
}

const GUEST_MEMORY: usize = 1 << 16;
const FILES_BYTES: u64 = 1 << 16;
/// The largest `errno` of WASI.
const LAST_ERRNO: i32 = 76;
/// Maximum size of a report.
const REPORT_BYTES: usize = 4 << 20;
/// Names of existing and new files.
const NAMES: [&[u8]; 12] = [
    b".",
    b"..",
    b"/",
    b"",
    b"a",
    b"b",
    b"a/b",
    b"a/../b",
    b"./a//b/",
    b"python315.zip",
    b"/usr/local/lib/python315.zip",
    b"\xff\0name",
];

/// All calls that a guest can make, over a guest's memory of 64 KiB.
pub struct HostCalls {
    engine: Engine,
    linker: Linker<HostState>,
    /// Module and name of each call.
    names: Vec<(String, String)>,
    archive: Archive,
}

impl Default for HostCalls {
    fn default() -> Self {
        let engine = engine::new_engine().unwrap();
        let mut linker = Linker::new(&engine);
        // A module without imports: this links exactly the calls that the host implements.
        let module = Module::new(&engine, b"\0asm\x01\0\0\0").unwrap();
        calls::link(&mut linker, &module).unwrap();
        let path = std::env::temp_dir().join(format!("torl-fuzzing-{}", std::process::id()));
        std::fs::write(&path, [b'z'; 100]).unwrap();
        let archive = Archive::of(&PinnedFile::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut store = Store::new(&engine, state(&archive, 0));
        let mut names: Vec<_> = linker
            .iter(&mut store)
            .map(|(module, name, _)| (module.to_owned(), name.to_owned()))
            .collect();
        names.sort();
        Self {
            engine,
            linker,
            names,
            archive,
        }
    }
}

fn request(output_bytes: u64) -> Request {
    Request {
        code: b"print(1)".to_vec(),
        seed: 7,
        stdin: b"input".to_vec(),
        files: vec![("a".into(), b"content".to_vec())],
        return_files: true,
        limits: Limits {
            memory_bytes: GUEST_MEMORY as u64,
            output_bytes,
            files_bytes: FILES_BYTES,
            ..Limits::default()
        },
        ..Request::default()
    }
}

fn state(archive: &Archive, output_bytes: u64) -> HostState {
    HostState::new(Gate::default(), archive.clone(), &request(output_bytes)).unwrap()
}

impl HostCalls {
    /// Runs `program`: continues with a session's saved host state, damaged or not, writes to the guest's memory, and
    /// makes calls with arbitrary arguments. Every call must be answered, and the host's state must stay within its
    /// limits. Returns a checksum of all results visible to the guest.
    pub fn play(&self, program: &[u8]) -> u32 {
        let mut program = Program(program);
        let output_bytes = usize::from(program.short());
        let mut store = Store::new(&self.engine, state(&self.archive, output_bytes as u64));
        let damage = program.byte();
        if damage >= 128 {
            let mut saved = store.data().save();
            for _ in 0..damage % 4 {
                let at = usize::from(program.short()) % saved.len();
                saved[at] ^= program.byte();
            }
            let request = request(output_bytes as u64);
            if store.data_mut().load(&saved, &request).is_err() {
                return 0;
            }
        }
        let memory = Memory::new(&mut store, MemoryType::new(1, Some(1))).unwrap();
        store.data_mut().memory = Some(memory);
        let mut name_written = (0, 0);
        let mut answers = crc32fast::Hasher::new();
        while !program.0.is_empty() {
            let step = program.byte();
            if step < 96 {
                let start = usize::from(program.short());
                let bytes = match step {
                    0..32 => program.bytes(usize::from(step) + 1).to_vec(),
                    32..64 => NAMES[usize::from(step) % NAMES.len()].to_vec(),
                    _ => (0..1 + step % 4)
                        .flat_map(|_| program.word().to_le_bytes())
                        .collect(),
                };
                let data = &mut memory.data_mut(&mut store)[start..];
                let length = bytes.len().min(data.len());
                data[..length].copy_from_slice(&bytes[..length]);
                if (32..64).contains(&step) {
                    name_written = (start as i32, length as i32);
                }
                continue;
            }
            let (module, name) = &self.names[usize::from(step - 96) % self.names.len()];
            let function = self.linker.get(&mut store, module, name).unwrap();
            let function = function.into_func().unwrap();
            let signature = function.ty(&store);
            let mut arguments = Vec::new();
            let mut length = None;
            for parameter in signature.params() {
                arguments.push(match (parameter, length.take()) {
                    (ValType::I64, _) => Val::I64(program.long()),
                    (_, Some(length)) => Val::I32(length),
                    // An existing path, by its address and its length.
                    (_, None) if program.byte() < 96 => {
                        length = Some(name_written.1);
                        Val::I32(name_written.0)
                    }
                    _ => Val::I32(program.word()),
                });
            }
            let mut results = vec![Val::I32(0); signature.results().len()];
            let ended = function.call(&mut store, &arguments, &mut results);
            let state = store.data();
            assert!(state.output().len() <= output_bytes, "{name}");
            assert!(state.report.len() <= REPORT_BYTES, "{name}");
            match ended {
                Ok(()) => {
                    let errno = results.first().map_or(0, Val::unwrap_i32);
                    assert!((-1..=LAST_ERRNO).contains(&errno), "{name} answers {errno}");
                    answers.update(&errno.to_le_bytes());
                }
                Err(error) => {
                    assert!(error.is::<Stop>(), "{name}: {error:?}");
                    break;
                }
            }
        }
        assert_eq!(memory.data_size(&store), GUEST_MEMORY);
        answers.update(memory.data(&store));
        let state = store.into_data();
        self.continue_from(&state, output_bytes as u64);
        let _ = (
            driver::status(&state.report),
            driver::exception(&state.report),
        );
        let output = state.output();
        for bytes in [&output.stdout, &output.stderr, &state.report] {
            answers.update(bytes);
        }
        drop(output);
        answers.finalize()
    }
}

impl HostCalls {
    /// Continues a session after any run of a guest: a state that does not load is an error of the host.
    fn continue_from(&self, ended: &HostState, output_bytes: u64) {
        let saved = ended.save();
        let mut next = state(&self.archive, output_bytes);
        next.load(&saved, &request(output_bytes)).unwrap();
        // All but the clock, which has a maximum.
        assert_eq!(next.save()[8..], saved[8..]);
    }
}

/// Bytes read as steps and arguments; zeros after the end.
struct Program<'a>(&'a [u8]);

impl<'a> Program<'a> {
    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, length: usize) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.bytes(length);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    fn short(&mut self) -> u16 {
        self.number(2) as u16
    }

    /// Returns mostly meaningful values: a descriptor, a count, an address.
    fn word(&mut self) -> i32 {
        match self.byte() % 8 {
            0 => [0, 1, 2, 3, 3, 4, 4, 5][usize::from(self.byte() % 8)],
            1 => 1000 + i32::from(self.byte() % 8),
            2 => i32::from(self.byte() as i8),
            3 => i32::from(self.short()),
            4 => i32::from(self.short() & !7),
            5 => GUEST_MEMORY as i32 - i32::from(self.byte()),
            6 => [i32::MIN, i32::MAX, -1, -8][usize::from(self.byte() % 4)],
            _ => self.number(4) as i32,
        }
    }

    fn long(&mut self) -> i64 {
        match self.byte() % 4 {
            0 => i64::from(self.byte() as i8),
            1 => i64::from(self.short()),
            2 => [
                0,
                i64::MIN,
                i64::MAX,
                -1,
                1 << 62,
                i64::MAX - 1,
                (1 << 62) - 1,
                1,
            ][usize::from(self.byte() % 8)],
            _ => self.number(8) as i64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::error::SandboxError;
    use crate::guest::Prepared;
    use crate::outcome::{Exception, Outcome, Status};
    use crate::run::instance::ImageLayout;
    use crate::run::runner::Reuse;
    use crate::worker::confine::Confinement;

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        fn below(&mut self, limit: usize) -> usize {
            (self.next() % limit as u64) as usize
        }
    }

    fn messages() -> Vec<Vec<u8>> {
        let exception = Exception {
            type_name: "E".into(),
            line: "E: é".into(),
            traceback: String::new(),
        };
        let mut memory = vec![0; 512];
        memory[130] = 1;
        let whole = 0..256;
        let whole = std::slice::from_ref(&whole);
        let state = SessionState::capture(&memory, &[0; 256], whole, vec![0; 16], usize::MAX);
        let session = Arc::new(state.unwrap());
        let outcome = Outcome {
            exception: Some(exception),
            stdout: b"out".to_vec(),
            value: Some("1".into()),
            files: vec![(b"a/b".to_vec(), b"2".to_vec())],
            session: Some(Arc::clone(&session)),
            ..Outcome::without_guest(Status::Error, Duration::from_nanos(9))
        };
        let prepared = Prepared {
            module: "/a".into(),
            image: "/b".into(),
            archive: "/c".into(),
            layout: ImageLayout::of_numbers(65536, [7, 8, 1, 12, 2, 65532, 3]).expect("a layout"),
        };
        let request = Request {
            code: b"print()".to_vec(),
            files: vec![("a".into(), b"1".to_vec())],
            session: Some(session),
            ..Request::default()
        };
        let confinement = Confinement {
            landlock: Some(7),
            seccomp: true,
            missing: vec!["a".into(), "b".into()],
        };
        vec![
            Command::Serve {
                prepared,
                reuse: Reuse::default(),
            }
            .encode(),
            Command::Run(request).encode(),
            Reply::Ready(Err("none".into()), confinement).encode(),
            Reply::Done(Box::new(outcome)).encode(),
            Reply::Failed(SandboxError::new("no guest")).encode(),
        ]
    }

    #[test]
    fn damaged_messages_are_read_or_refused() {
        let mut random = Random(1);
        let messages = messages();
        for _ in 0..200_000 {
            let mut bytes = messages[random.below(messages.len())].clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() + 1);
                match random.below(4) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, random.next() as u8),
                    2 => drop(bytes.drain(at..bytes.len().min(at + 8))),
                    _ => {
                        if let Some(byte) = bytes.get_mut(at) {
                            *byte ^= 1 << random.below(8);
                        }
                    }
                }
            }
            protocol(&bytes);
        }
    }

    #[test]
    fn every_program_of_host_calls_is_answered_the_same_each_time() {
        let mut random = Random(2);
        let host_calls = HostCalls::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..3_000 {
            let program: Vec<u8> = (0..random.below(400))
                .map(|_| random.next() as u8)
                .collect();
            let answer = host_calls.play(&program);
            assert_eq!(host_calls.play(&program), answer);
            seen.insert(answer);
        }
        assert!(seen.len() > 2_000, "the programs have hardly any effect");
    }
}
