use std::os::unix::fs::PermissionsExt;

use super::*;

fn folder() -> (tempfile::TempDir, Arc<dyn Dir>) {
    let temp = tempfile::tempdir().unwrap();
    let dir = OsDir::open(&temp.path().join("data/here")).unwrap();
    (temp, dir)
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn what_is_made_is_for_this_user_only() {
    let (temp, dir) = folder();
    dir.create_dir("sub").unwrap().create("file").unwrap();
    let root = temp.path().join("data/here");
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&root.join("sub")), 0o700);
    assert_eq!(mode(&root.join("sub/file")), 0o600);
}

#[test]
fn a_name_with_more_than_one_component_is_refused() {
    let (_temp, dir) = folder();
    for name in ["", ".", "..", "a/b", "/etc", "a\0b"] {
        let kinds = [
            dir.open(name).map(drop).unwrap_err().kind(),
            dir.create(name).map(drop).unwrap_err().kind(),
            dir.open_dir(name).map(drop).unwrap_err().kind(),
            dir.create_dir(name).map(drop).unwrap_err().kind(),
            dir.rename(name, "b").unwrap_err().kind(),
            dir.rename("b", name).unwrap_err().kind(),
            dir.remove(name).unwrap_err().kind(),
            dir.remove_dir(name).unwrap_err().kind(),
        ];
        assert_eq!(kinds, [io::ErrorKind::InvalidInput; 8], "{name:?}");
    }
}

#[test]
fn a_link_is_not_followed() {
    let (temp, dir) = folder();
    std::os::unix::fs::symlink("/dev/null", temp.path().join("data/here/link")).unwrap();
    assert!(dir.open("link").is_err());
}

#[test]
fn making_a_file_that_is_there_is_refused() {
    let (_temp, dir) = folder();
    dir.create("one").unwrap();
    assert_eq!(
        dir.create("one").unwrap_err().kind(),
        io::ErrorKind::AlreadyExists
    );
    assert_eq!(dir.open("two").unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_folder_lists_its_names_in_order() {
    let (_temp, dir) = folder();
    for name in ["b", "c", "a"] {
        dir.create(name).unwrap();
    }
    dir.create_dir("ab").unwrap();
    dir.rename("c", "B").unwrap();
    dir.remove("b").unwrap();
    dir.sync().unwrap();
    assert_eq!(dir.list().unwrap(), ["B", "a", "ab"]);
    dir.remove_dir("ab").unwrap();
    assert_eq!(dir.list().unwrap(), ["B", "a"]);
}

#[test]
fn many_parts_are_written_one_behind_the_other() {
    let (_temp, dir) = folder();
    let file = dir.create("file").unwrap();
    let bytes: Vec<u8> = (0..5000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let mut parts: Vec<&[u8]> = bytes.chunks(2).collect();
    parts.insert(1500, &[]);
    file.write_vectored_at(&parts, 3).unwrap();
    let mut back = vec![0; 6000];
    assert_eq!(file.read_at(&mut back, 3).unwrap(), 5000);
    assert_eq!(back.get(..5000).unwrap(), bytes);
    assert_eq!(file.len().unwrap(), 5003);
}

#[test]
fn a_read_is_short_only_at_the_end_of_the_file() {
    let (_temp, dir) = folder();
    let file = dir.create("file").unwrap();
    file.write_at(b"varve", 0).unwrap();
    let mut into = [0; 4];
    assert_eq!(file.read_at(&mut into, 3).unwrap(), 2);
    assert_eq!(file.read_at(&mut into, 5).unwrap(), 0);
    let error = read_exact_at(file.as_ref(), &mut into, 2).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    read_exact_at(file.as_ref(), &mut into, 1).unwrap();
    assert_eq!(&into, b"arve");
}

#[test]
fn allocation_lengthens_a_file_and_keeps_its_bytes() {
    let (_temp, dir) = folder();
    let file = dir.create("file").unwrap();
    file.write_at(b"varve", 0).unwrap();
    file.allocate(16 * 1024).unwrap();
    assert_eq!(file.len().unwrap(), 16 * 1024);
    file.sync_data().unwrap();
    file.drop_cache().unwrap();
    let map = file.map(16 * 1024).unwrap();
    assert_eq!(map.load(0).map(u64::to_le_bytes), Some(*b"varve\0\0\0"));
    assert_eq!(map.load(2047), Some(0));
    file.allocate(8).unwrap();
    assert_eq!(file.len().unwrap(), 16 * 1024);
}

#[test]
fn filling_with_zeros_stands_in_for_an_allocation() {
    let file = OsFile {
        file: tempfile::tempfile().unwrap(),
    };
    file.write_at(b"varve", 0).unwrap();
    file.fill_to(100_000).unwrap();
    assert_eq!(file.len().unwrap(), 100_000);
    let mut into = [1; 8];
    read_exact_at(&file, &mut into, 0).unwrap();
    assert_eq!(&into, b"varve\0\0\0");
}

#[test]
fn short_and_interrupted_calls_are_continued() {
    let mut written = Vec::new();
    let mut calls = 0;
    write_until_done(&[b"one", b"", b"second", b"3"], 10, |some, at| {
        calls += 1;
        if calls % 2 == 0 {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        assert_eq!(at, 10 + written.len() as u64);
        let first: Vec<u8> = some
            .iter()
            .flat_map(|part| part.iter().copied())
            .take(4)
            .collect();
        written.extend_from_slice(&first);
        Ok(first.len())
    })
    .unwrap();
    assert_eq!(written, b"onesecond3");

    let mut into = [0; 10];
    let mut calls = 0;
    let bytes = read_until_full(&mut into, 0, |rest, at| {
        calls += 1;
        if calls % 2 == 0 {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        let from = usize::try_from(at).unwrap();
        let some = written.len().saturating_sub(from).min(3).min(rest.len());
        rest[..some].copy_from_slice(&written[from..from + some]);
        Ok(some)
    });
    assert_eq!((bytes.unwrap(), &into), (10, b"onesecond3"));
}

#[test]
fn a_write_that_moves_nothing_is_an_error() {
    let error = write_until_done(&[b"one"], 0, |_, _| Ok(0)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
}

#[test]
fn the_volume_has_room_and_says_how_much() {
    let (_temp, dir) = folder();
    let space = dir.space().unwrap();
    assert!(space.total > 0 && space.free <= space.total);
}
