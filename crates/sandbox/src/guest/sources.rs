//! The text of all sources of the prepared guest: part of its key, so that a change never uses an older guest.

pub const SOURCES: [&str; 19] = [
    include_str!("artifacts.rs"),
    include_str!("cache.rs"),
    include_str!("casts.rs"),
    include_str!("frames.rs"),
    include_str!("functions.rs"),
    include_str!("integers/buffers.rs"),
    include_str!("integers/conversions.rs"),
    include_str!("integers/indices.rs"),
    include_str!("integers/legacy.rs"),
    include_str!("integers/mod.rs"),
    include_str!("integers/objects.rs"),
    include_str!("integers/places.rs"),
    include_str!("integers/results.rs"),
    include_str!("interrupt.rs"),
    include_str!("libc.rs"),
    include_str!("library.rs"),
    include_str!("mod.rs"),
    include_str!("module.rs"),
    include_str!("preparation.rs"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    fn texts(directory: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                texts(&path, found);
            } else if path.extension().is_some_and(|name| name == "rs")
                && !path.ends_with("sources.rs")
            {
                found.insert(fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn every_file_that_prepares_the_guest_is_named() {
        let mut found = BTreeSet::new();
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guest");
        texts(&here, &mut found);
        assert_eq!(
            found,
            SOURCES
                .iter()
                .map(ToString::to_string)
                .collect::<BTreeSet<_>>()
        );
    }
}
