//! Semantics of the file system, most of them POSIX's.

use super::*;

#[test]
fn a_run_finds_an_empty_directory_to_work_in() {
    let mut files = fresh();
    assert_eq!(files.names("/"), ["usr", "dev", "tmp", "work"]);
    assert!(files.names("work").is_empty() && files.names("tmp").is_empty());
    assert_eq!(files.names("usr/local/lib"), ["python315.zip"]);
}

#[test]
fn paths_lead_only_into_the_tree() {
    let mut files = fresh();
    files.file("work/x", b"mine");
    for path in [
        "/work/x",
        "../../work/x",
        "work/../../../work/./x",
        "//work//x",
        "usr/../work/x",
    ] {
        assert_eq!(files.size(path), Ok(4), "{path}");
    }
    for path in [
        "etc/passwd",
        "/etc/passwd",
        "../etc/passwd",
        "work/../../../../etc/passwd",
    ] {
        assert_eq!(files.at(path, READ), Err(errno::NOENT), "{path}");
    }
    let from_library = |path: &str| files.stat_path(LIBRARY_DIRECTORY, path.as_bytes());
    assert_eq!(from_library("../../../work/x").unwrap().size, 4);
    assert_eq!(from_library("/work/x").unwrap().size, 4);
    assert_eq!(from_library("../../../etc/passwd"), Err(errno::NOENT));
}

#[test]
fn the_archive_and_its_directory_cannot_be_changed() {
    let mut files = fresh();
    let archive = "usr/local/lib/python315.zip";
    for options in [
        WRITE,
        UPDATE,
        OpenOptions {
            truncate: true,
            ..READ
        },
    ] {
        assert_eq!(files.at(archive, options), Err(errno::ROFS));
    }
    assert_eq!(files.unlink(archive), Err(errno::ROFS));
    assert_eq!(files.mv(archive, "work/x"), Err(errno::ROFS));
    files.file("work/x", b"x");
    assert_eq!(files.mv("work/x", archive), Err(errno::ROFS));
    assert_eq!(files.mv("work/x", "usr/x"), Err(errno::ROFS));
    assert_eq!(files.mv("usr", "work/usr"), Err(errno::ROFS));
    assert_eq!(files.at("usr/local/lib/x", WRITE), Err(errno::ROFS));
    assert_eq!(files.make("dev/x"), Err(errno::ROFS));
    assert_eq!(files.rmdir("usr/local/lib"), Err(errno::ROFS));
    assert_eq!(
        files.set_times_of_path(ROOT_DIRECTORY, archive.as_bytes(), [Some(0); 2], 1),
        Err(errno::ROFS)
    );
    assert_eq!(files.content(archive), b"the standard library");
    let fd = files.at(archive, READ).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(files.seek(fd, -7, 2), Ok(13));
    assert_eq!(files.read(fd, None, &mut bytes), Ok(7));
    assert_eq!(&bytes[..7], b"library");
    assert_eq!(files.read(fd, Some(u64::MAX), &mut bytes), Ok(0));
    assert_eq!(files.write(fd, None, b"x", 1), Err(errno::BADF));
    assert_eq!(files.resize(fd, 0, 1), Err(errno::INVAL));
}

#[test]
fn errors_are_those_of_linux() {
    let mut files = fresh();
    files.make("d").unwrap();
    files.make("d/e").unwrap();
    files.file("f", b"1");
    let exclusive = OpenOptions {
        exclusive: true,
        ..WRITE
    };
    let directory = OpenOptions {
        directory: true,
        ..READ
    };
    let long = "x".repeat(256);
    for (path, options, error) in [
        ("", READ, errno::NOENT),
        ("missing", READ, errno::NOENT),
        ("missing/x", WRITE, errno::NOENT),
        ("f/x", WRITE, errno::NOTDIR),
        ("f/", READ, errno::NOTDIR),
        ("f/..", READ, errno::NOTDIR),
        ("new/", WRITE, errno::ISDIR),
        ("f//", WRITE, errno::ISDIR),
        ("d/", exclusive, errno::ISDIR),
        ("d/.", exclusive, errno::EXIST),
        ("d", WRITE, errno::ISDIR),
        ("d", UPDATE, errno::ISDIR),
        (".", WRITE, errno::ISDIR),
        ("f", exclusive, errno::EXIST),
        ("d", exclusive, errno::EXIST),
        ("f", directory, errno::NOTDIR),
        (&long, WRITE, errno::NAMETOOLONG),
        ("a\0b", WRITE, errno::INVAL),
        (
            "f",
            OpenOptions {
                create: true,
                ..directory
            },
            errno::INVAL,
        ),
    ] {
        assert_eq!(files.at(path, options), Err(error), "open {path}");
    }
    for (path, error) in [
        ("", errno::NOENT),
        ("d", errno::EXIST),
        ("f", errno::EXIST),
        (".", errno::EXIST),
        ("d/..", errno::EXIST),
        ("f/", errno::EXIST),
        ("/", errno::EXIST),
        ("f/x", errno::NOTDIR),
        ("missing/x", errno::NOENT),
    ] {
        assert_eq!(files.make(path), Err(error), "mkdir {path}");
    }
    for (path, error) in [
        ("d", errno::NOTEMPTY),
        ("f", errno::NOTDIR),
        ("missing", errno::NOENT),
        ("d/.", errno::INVAL),
        ("d/e/..", errno::NOTEMPTY),
        ("/", errno::BUSY),
    ] {
        assert_eq!(files.rmdir(path), Err(error), "rmdir {path}");
    }
    for (path, error) in [
        ("d", errno::ISDIR),
        ("d/.", errno::ISDIR),
        ("f/", errno::NOTDIR),
        ("missing", errno::NOENT),
    ] {
        assert_eq!(files.unlink(path), Err(error), "unlink {path}");
    }
    for (old, new, error) in [
        ("missing", "x", errno::NOENT),
        ("f", "missing/x", errno::NOENT),
        ("f", "d", errno::ISDIR),
        ("d", "f", errno::NOTDIR),
        ("f", "x/", errno::NOTDIR),
        ("d", "d/e/x", errno::INVAL),
        ("d", "d/x", errno::INVAL),
        ("d/e", "d", errno::NOTEMPTY),
        ("d/.", "x", errno::BUSY),
        ("d", "..", errno::BUSY),
    ] {
        assert_eq!(files.mv(old, new), Err(error), "rename {old} {new}");
    }
    assert_eq!((files.mv("d", "d"), files.mv("f", "f")), (Ok(()), Ok(())));
    let at = |path: &str| files.refuse_link_at(ROOT_DIRECTORY, path.as_bytes());
    assert_eq!((at("x"), at("f")), (Err(errno::PERM), Err(errno::EXIST)));
    let fd = files.at("d", directory).unwrap();
    assert_eq!(files.read(fd, None, &mut [0]), Err(errno::ISDIR));
    assert_eq!(files.write(fd, None, b"x", 1), Err(errno::BADF));
    assert_eq!(
        (files.close(fd), files.close(fd)),
        (Ok(()), Err(errno::BADF))
    );
    for fd in [3, 4, -1, 99, i32::MAX] {
        assert_eq!(files.close(fd), Err(errno::BADF));
    }
    assert_eq!(files.seek(0, 0, 0), Err(errno::SPIPE));
    assert_eq!(files.open(1, b"x", READ, 1), Err(errno::NOTDIR));
}

#[test]
fn removed_files_stay_readable_while_open() {
    let mut files = fresh();
    let before = files.clone();
    let fd = files
        .at(
            "f",
            OpenOptions {
                read: true,
                ..WRITE
            },
        )
        .unwrap();
    files.make("d").unwrap();
    let directory = files.at("d", READ).unwrap();
    assert_eq!((files.unlink("f"), files.rmdir("d")), (Ok(()), Ok(())));
    assert_eq!(files.write(fd, None, b"still here", 1), Ok(10));
    let mut bytes = [0; 5];
    assert_eq!(files.read(fd, Some(6), &mut bytes), Ok(4));
    assert_eq!(&bytes[..4], b"here");
    assert_eq!(files.stat(fd).unwrap().links, 0);
    for path in ["x", "..", "../f"] {
        assert_eq!(
            files.stat_path(directory, path.as_bytes()),
            Err(errno::NOENT),
            "{path}"
        );
        assert_eq!(
            files.open(directory, path.as_bytes(), WRITE, 1),
            Err(errno::NOENT)
        );
    }
    assert_eq!(files.stat_path(directory, b".").unwrap().links, 0);
    assert_eq!((files.close(fd), files.close(directory)), (Ok(()), Ok(())));
    assert_eq!(files.tree().nodes().len(), before.tree().nodes().len());
    // Its bytes are free again.
    files.file("f", &[1; LIMIT as usize]);
}

#[test]
fn a_listing_continues_while_entries_change() {
    let mut files = fresh();
    for index in 0..50 {
        files.file(&format!("work/{index:02}"), b"");
    }
    let fd = files.at("work", READ).unwrap();
    let mut seen = Vec::new();
    let mut cookie = 0;
    loop {
        let (start, mut name) = (cookie, None);
        let mut take = |next, _, node: &Node| {
            cookie = next;
            name = Some(String::from_utf8_lossy(&node.name).into_owned());
            false
        };
        files.list(fd, start, &mut take).unwrap();
        let Some(name) = name else { break };
        // Each is removed and returns under another name: a listing that included it again would never end.
        files
            .mv(&format!("work/{name}"), &format!("work/{name}x"))
            .unwrap();
        seen.push(name);
    }
    let expected: Vec<String> = (0..50).map(|index| format!("{index:02}")).collect();
    assert_eq!(seen, expected);
    assert_eq!(files.names("work").len(), 50);
    assert_eq!(files.list(fd, u64::MAX, |_, _, _| true), Ok(()));
}

#[test]
fn an_appending_descriptor_writes_at_the_end() {
    let mut files = fresh();
    files.file("f", b"ab");
    let append = files
        .at(
            "f",
            OpenOptions {
                append: true,
                ..UPDATE
            },
        )
        .unwrap();
    let other = files.at("f", UPDATE).unwrap();
    files.write(append, None, b"c", 1).unwrap();
    files.write(other, None, b"X", 1).unwrap();
    files.seek(append, 0, 0).unwrap();
    files.write(append, None, b"d", 1).unwrap();
    assert_eq!(files.content("f"), b"Xbcd");
    files.set_append(append, false).unwrap();
    files.seek(append, 1, 0).unwrap();
    files.write(append, None, b"Y", 1).unwrap();
    assert_eq!(files.content("f"), b"XYcd");
}

#[test]
fn times_record_changes() {
    let mut files = fresh();
    let fd = files.open(ROOT_DIRECTORY, b"work/f", WRITE, 10).unwrap();
    let times = |files: &FileSystem, path: &[u8]| {
        let stat = files.stat_path(ROOT_DIRECTORY, path).unwrap();
        (stat.accessed, stat.modified, stat.changed)
    };
    assert_eq!(times(&files, b"work/f"), (10, 10, 10));
    assert_eq!(times(&files, b"work"), (0, 10, 10));
    files.write(fd, None, b"x", 20).unwrap();
    assert_eq!(times(&files, b"work/f"), (10, 20, 20));
    files.set_times(fd, [Some(1), None], 30).unwrap();
    assert_eq!(times(&files, b"work/f"), (1, 20, 30));
    files.rename((4, b"work/f"), (4, b"tmp/g"), 40).unwrap();
    assert_eq!(times(&files, b"tmp/g"), (1, 20, 40));
    assert_eq!(
        (times(&files, b"work").1, times(&files, b"tmp").1),
        (40, 40)
    );
}

#[test]
fn changed_files_of_a_run_are_listed() {
    let mut files = fresh();
    for path in [
        "same",
        "same again",
        "removed",
        "moved",
        "d/kept",
        "changed",
        "rewritten",
    ] {
        files.put(path, path.as_bytes(), 0).unwrap();
    }
    let before = files.tree().clone();
    assert!(files.tree().files_changed_since(&before).is_empty());
    files.file("work/same again", b"same again");
    files.unlink("work/removed").unwrap();
    files.mv("work/moved", "work/d/there").unwrap();
    files.file("work/changed", b"x");
    files.file("work/rewritten", b"REWRITTEN");
    files.make("work/empty").unwrap();
    files.file("work/empty file", b"");
    files.file("tmp/elsewhere", b"x");
    let expected: [(&[u8], &[u8]); 4] = [
        (b"changed", b"xhanged"),
        (b"d/there", b"moved"),
        (b"empty file", b""),
        (b"rewritten", b"REWRITTEN"),
    ];
    let changed = files.tree().files_changed_since(&before);
    let changed: Vec<(&[u8], &[u8])> = changed
        .iter()
        .map(|(path, bytes)| (&path[..], &bytes[..]))
        .collect();
    assert_eq!(changed, expected);
    // A moved directory moves its files to new paths.
    files.mv("work/d", "work/e").unwrap();
    let changed = files.tree().files_changed_since(&before);
    let paths: Vec<&[u8]> = changed.iter().map(|(path, _)| &path[..]).collect();
    assert!(paths.contains(&&b"e/kept"[..]) && paths.contains(&&b"e/there"[..]));
    // A missing directory is not an error either.
    files.mv("work", "elsewhere").unwrap();
    assert!(files.tree().files_changed_since(&before).is_empty());
    files.file("work", b"a file now");
    assert!(files.tree().files_changed_since(&before).is_empty());
}
