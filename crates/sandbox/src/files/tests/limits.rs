//! Tests of the limits, approached in every way.

use super::*;

#[test]
fn the_bytes_of_all_files_together_are_limited() {
    let mut files = fresh();
    files.file("a", &[1; LIMIT as usize / 2]);
    let fd = files.at("b", WRITE).unwrap();
    assert_eq!(
        files.write(fd, None, &[2; LIMIT as usize], 1),
        Ok(LIMIT as usize / 2)
    );
    assert_eq!(files.write(fd, None, b"x", 1), Err(errno::NOSPC));
    assert_eq!(files.write(fd, None, b"", 1), Ok(0));
    assert_eq!(files.write(fd, Some(0), b"over what is there", 1), Ok(18));
    assert_eq!(files.resize(fd, LIMIT as i64, 1), Err(errno::NOSPC));
    assert_eq!(files.resize(fd, i64::MAX, 1), Err(errno::NOSPC));
    assert_eq!(files.resize(fd, -1, 1), Err(errno::INVAL));
    assert_eq!(files.seek(fd, i64::MAX, 0), Ok(i64::MAX as u64));
    assert_eq!(files.write(fd, None, b"x", 1), Err(errno::NOSPC));
    assert_eq!(files.seek(fd, 1, 1), Err(errno::INVAL));
    files.unlink("a").unwrap();
    assert_eq!(files.resize(fd, LIMIT as i64, 1), Ok(()));
    assert_eq!(files.resize(fd, 0, 1), Ok(()));
    files.file("a", &[1; LIMIT as usize]);
}

#[test]
fn the_number_of_files_and_descriptors_is_limited() {
    let mut files = fresh();
    let open: Vec<i32> = (5..512).map(|_| files.at("f", WRITE).unwrap()).collect();
    assert_eq!(open, (5..512).collect::<Vec<_>>());
    assert_eq!(files.at("f", READ), Err(errno::MFILE));
    assert_eq!((files.close(77), files.at("f", READ)), (Ok(()), Ok(77)));
    for fd in open {
        files.close(fd).unwrap();
    }
    let made = (0..10_000)
        .take_while(|index| files.make(&format!("work/{index}")).is_ok())
        .count();
    assert_eq!(files.make("work/more"), Err(errno::NOSPC));
    assert!((8000..8192).contains(&made), "{made}");
    assert_eq!(
        (files.rmdir("work/7"), files.make("work/more")),
        (Ok(()), Ok(()))
    );
}

#[test]
fn depth_and_length_of_paths_are_limited() {
    let mut files = fresh();
    let deep = |count: usize| vec!["d"; count].join("/");
    for count in 1..=128 {
        files.make(&deep(count)).unwrap();
    }
    assert_eq!(files.make(&deep(129)), Err(errno::NAMETOOLONG));
    let bottom = files.at(&deep(128), READ).unwrap();
    assert_eq!(
        files.make_directory(bottom, b"x", 1),
        Err(errno::NAMETOOLONG)
    );
    assert_eq!(files.open(bottom, b"x", WRITE, 1), Err(errno::NAMETOOLONG));
    // A moved tree keeps its depth.
    files.make("e").unwrap();
    assert_eq!(files.mv("d", "e/d"), Err(errno::NAMETOOLONG));
    assert_eq!(files.mv(&deep(128), "e/d"), Ok(()));
    assert_eq!(files.mv("d", "e/x"), Ok(()));

    let long = "n".repeat(255);
    let mut path = String::from("long");
    files.make(&path).unwrap();
    while path.len() + 256 < 4096 {
        path = format!("{path}/{long}");
        files.make(&path).unwrap();
    }
    let bottom = files.at(&path, READ).unwrap();
    assert_eq!(
        files.make_directory(bottom, long.as_bytes(), 1),
        Err(errno::NAMETOOLONG)
    );
    files.make_directory(bottom, b"x", 1).unwrap();
    assert_eq!(files.mv("long", &"l".repeat(255)), Err(errno::NAMETOOLONG));
    assert_eq!(files.mv("long", "l"), Ok(()));
    assert_eq!(files.size(&"./".repeat(2049)), Err(errno::NAMETOOLONG));
}
