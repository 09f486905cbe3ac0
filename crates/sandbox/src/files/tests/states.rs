//! States as bytes, and long random series of operations.

use super::*;
use crate::wire::{Reader, Writer};

fn encoded(files: &FileSystem) -> Vec<u8> {
    let mut writer = Writer::default();
    files.encode(&mut writer);
    writer.0
}

fn decoded(bytes: &[u8]) -> std::io::Result<FileSystem> {
    let mut reader = Reader(bytes);
    let files = FileSystem::decode(&mut reader, Archive::for_tests(), LIMIT)?;
    reader.end(files)
}

/// A stream of numbers (SplitMix64), and operations made from it.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 31) % bound
    }

    fn path(&mut self) -> Vec<u8> {
        let part = |random: &mut Self| {
            let parts = ["a", "b", "c", "d", ".", "..", "work", "tmp", "usr", ""];
            parts[random.below(parts.len() as u64) as usize]
        };
        let count = 1 + self.below(4);
        let parts: Vec<&str> = (0..count).map(|_| part(self)).collect();
        parts.join("/").into_bytes()
    }

    fn act(&mut self, files: &mut FileSystem, now: u64) {
        let (path, other) = (self.path(), self.path());
        let fd = self.below(12) as i32;
        let start = self.below(3 * LIMIT / 2);
        let bytes = vec![now as u8; self.below(100_000) as usize];
        let options = OpenOptions {
            read: self.below(2) == 0,
            write: self.below(2) == 0,
            append: self.below(4) == 0,
            create: self.below(2) == 0,
            exclusive: self.below(4) == 0,
            truncate: self.below(4) == 0,
            directory: self.below(4) == 0,
        };
        match self.below(13) {
            0 | 1 => drop(files.open(fd, &path, options, now)),
            2 => drop(files.open(4, &path, options, now)),
            3 => drop(files.close(fd)),
            4 => drop(files.write(fd, None, &bytes, now)),
            5 => drop(files.write(fd, Some(start), &bytes, now)),
            6 => drop(files.resize(fd, start as i64, now)),
            7 => {
                let offset =
                    [start as i64, i64::MAX, i64::MAX - 1, 1 << 62][self.below(4) as usize];
                let _ = files.seek(fd, offset, self.below(3) as i32);
            }
            8 => drop(files.make_directory(4, &path, now)),
            9 => drop(files.remove_file(4, &path, now)),
            10 => drop(files.remove_directory(4, &path, now)),
            11 => drop(files.rename((4, &path), (4, &other), now)),
            _ => drop(files.list(fd, self.below(5), |_, _, _| true)),
        }
    }
}

/// Decoding checks the soundness of its input, so this also tests that no operation leaves a tree unsound.
#[test]
fn any_state_is_read_back_as_it_was() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut files = fresh();
        for now in 0..200 {
            random.act(&mut files, now);
        }
        let bytes = encoded(&files);
        let mut again = decoded(&bytes).expect("the encoded state is sound");
        assert!(again.tree == files.tree && again.descriptors == files.descriptors);
        // Both continue identically.
        let (mut first, mut second) = (Random(seed + 1000), Random(seed + 1000));
        for now in 200..250 {
            first.act(&mut files, now);
            second.act(&mut again, now);
        }
        assert!(again.tree == files.tree && again.descriptors == files.descriptors);
    }
}

/// Any position that a program can seek to: a state that is saved must load.
#[test]
fn every_position_is_read_back() {
    let mut files = fresh();
    files.file("work/a", b"some bytes");
    let fd = files.at("work/a", READ).unwrap();
    for position in [0, 1, (1 << 62) - 1, 1 << 62, i64::MAX - 1, i64::MAX] {
        assert_eq!(files.seek(fd, position, 0), Ok(position as u64));
        let again = decoded(&encoded(&files)).expect("the encoded state is sound");
        assert!(again.descriptors == files.descriptors, "{position}");
    }
    assert_eq!(files.seek(fd, 1, 1), Err(errno::INVAL));
}

#[test]
fn damaged_states_are_refused_or_sound() {
    let mut random = Random(7);
    let mut files = fresh();
    files.file("work/a", b"some bytes");
    files.make("work/b").unwrap();
    files.file("work/b/c", b"more");
    files.at("work/a", READ).unwrap();
    files.at("work/b/c", READ).unwrap();
    files.unlink("work/b/c").unwrap();
    let bytes = encoded(&files);
    assert!(decoded(&bytes).is_ok());
    for length in 0..bytes.len() {
        assert!(decoded(&bytes[..length]).is_err(), "cut at {length}");
    }
    for at in 0..bytes.len() {
        for _ in 0..20 {
            let mut damaged = bytes.clone();
            damaged[at] = random.below(256) as u8;
            if let Ok(mut files) = decoded(&damaged) {
                for now in 0..20 {
                    random.act(&mut files, now);
                }
                files.tree().files_changed_since(&fresh().tree);
            }
        }
    }
}
