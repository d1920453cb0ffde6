//! Hostile paths: nothing outside of the bounding folder is read or written by any path, and nothing
//! that is not a regular file is waited for.

mod delivered;
mod named;
mod sources;

use std::{
    fs,
    path::{Path, PathBuf},
};

use nix::sys::stat::Mode;

use crate::cli::program::{Ended, Place};

/// What lies outside of every folder here.
const SECRET: &str = "the-secret-canary";

/// A folder `inside` that programs run in, and a folder `outside` with a secret.
struct World {
    place: Place,
    outside: PathBuf,
}

impl World {
    fn new() -> Self {
        let place = Place::new();
        let outside = place.path("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), SECRET).unwrap();
        fs::create_dir(place.path("inside")).unwrap();
        Self { place, outside }
    }

    /// A path in the folder that programs run in.
    fn inside(&self, path: &str) -> PathBuf {
        self.place.path("inside").join(path)
    }

    /// Writes a file of the folder, and makes its folders.
    fn write(&self, path: &str, text: &str) {
        let path = self.inside(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs the program in the folder.
    fn run(&self, args: &[&str]) -> Ended {
        let mut command = self.place.command(args);
        let output = command.current_dir(self.inside("")).output().unwrap();
        Ended {
            code: output.status.code().expect("no signal ended it"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Fails when anything outside changed.
    fn assert_untouched(&self, case: &str) {
        assert_eq!(fs::read_to_string(self.outside.join("secret")).unwrap(), SECRET, "{case}");
        assert_eq!(fs::read_dir(&self.outside).unwrap().count(), 1, "{case}: a file was written");
    }
}

fn make_pipe(path: &Path) {
    nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o600)).unwrap();
}
