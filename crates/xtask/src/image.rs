//! `cargo xtask image` and `cage`: root file systems for tests, of packages of this machine's own
//! distribution. Each is built once for its recipe, and needs no registry of images.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandbox::engine::Engine;

/// What a root file system is made of.
struct Recipe {
    packages: &'static str,
    /// How mmdebstrap calls what it does with them.
    variant: &'static str,
    /// Counts up when the recipe changes otherwise.
    version: u32,
}

/// What workers of the tests run.
const IMAGE: Recipe = Recipe {
    packages: "busybox,coreutils,dash,grep,python3,sed",
    variant: "extract",
    version: 1,
};

/// A machine of systemd's: it knows users, and its packages are configured.
const CAGE: Recipe = Recipe {
    packages: "dbus,dbus-user-session,libpam-systemd,systemd-sysv",
    variant: "essential",
    version: 1,
};

/// Builds the image if `folder` does not keep it yet, gives it to the engine at `socket` as `name`,
/// and says its id.
pub(crate) fn make(folder: &Path, socket: &Path, name: &str) -> io::Result<String> {
    let archive = archive(folder, &IMAGE)?;
    let mut file = File::open(&archive)?;
    let bytes = file.metadata()?.len();
    let image = Engine::at(socket)
        .import_image(name, &mut file, bytes)
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(image.id)
}

/// Builds the machine that tests start systemd in, if `folder` does not keep it yet, and says where
/// it is. Needs root.
pub(crate) fn make_cage(folder: &Path) -> io::Result<PathBuf> {
    archive(folder, &CAGE)
}

/// The root file system as a tar file in `folder`.
fn archive(folder: &Path, recipe: &Recipe) -> io::Result<PathBuf> {
    let suite = suite()?;
    fs::create_dir_all(folder)?;
    let name = format!(
        "{suite}-{}-{}",
        recipe.packages.replace(',', "-"),
        recipe.version
    );
    let ready = folder.join(format!("{name}.tar"));
    if ready.is_file() {
        return Ok(ready);
    }
    // Under another name until it is whole.
    let unfinished = folder.join(format!("{name}.{}.part.tar", std::process::id()));
    let made = Command::new("mmdebstrap")
        .arg("--quiet")
        .arg(format!("--variant={}", recipe.variant))
        .arg(format!("--include={}", recipe.packages))
        .arg(&suite)
        .arg(&unfinished)
        .args(sources(&suite)?)
        .status()?;
    if !made.success() {
        let _removed = fs::remove_file(&unfinished);
        return Err(io::Error::other(format!("mmdebstrap ended with {made}")));
    }
    fs::rename(&unfinished, &ready)?;
    Ok(ready)
}

/// The code name of this machine's distribution.
fn suite() -> io::Result<String> {
    let release = fs::read_to_string("/etc/os-release")?;
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(|name| name.trim_matches('"').to_owned())
        .ok_or_else(|| io::Error::other("/etc/os-release names no code name"))
}

/// The machine's own package sources that have the suite.
fn sources(suite: &str) -> io::Result<Vec<PathBuf>> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(folder) = fs::read_dir("/etc/apt/sources.list.d") {
        for entry in folder {
            files.push(entry?.path());
        }
    }
    files.retain(|path| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_read = name.ends_with(".list") || name.ends_with(".sources");
        is_read && has_suite(&fs::read_to_string(path).unwrap_or_default(), suite)
    });
    files.sort();
    match files.is_empty() {
        true => {
            let why = format!("no file of /etc/apt lists packages of `{suite}`");
            Err(io::Error::other(why))
        }
        false => Ok(files),
    }
}

fn has_suite(text: &str, suite: &str) -> bool {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    lines
        .filter(|line| line.starts_with("deb ") || line.starts_with("Suites:"))
        .any(|line| line.split_whitespace().any(|word| word == suite))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_another_suite_are_not_taken() {
        assert!(has_suite("deb SOME bookworm main\n", "bookworm"));
        assert!(has_suite(
            "Types: deb\nSuites: bookworm bookworm-updates\n",
            "bookworm"
        ));
        assert!(!has_suite("# deb SOME bookworm main\n", "bookworm"));
        assert!(!has_suite("deb SOME cloud-sdk-bookworm main\n", "bookworm"));
        assert!(!has_suite("deb-src SOME bookworm main\n", "bookworm"));
    }
}
