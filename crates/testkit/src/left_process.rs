//! A process that a container's runtime left.

use std::io;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// One that is called as gVisor's sandbox is, names a container, and ends only when it is killed.
#[derive(Debug)]
pub struct LeftProcess {
    child: Mutex<Child>,
    _program: tempfile::TempDir,
}

impl LeftProcess {
    /// Starts it. Its command line can be read when this returns.
    ///
    /// # Errors
    /// There is no place for its program, or it does not start.
    pub fn of(container: &str) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join("runsc-sandbox");
        symlink("/bin/sh", &program)?;
        let child = Command::new(&program)
            .args(["-c", "while :; do sleep 0.1; done", container])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let line = format!("/proc/{}/cmdline", child.id());
        let left = Self {
            child: Mutex::new(child),
            _program: folder,
        };
        // A new program's command line is there a moment after its start.
        while !String::from_utf8_lossy(&std::fs::read(&line)?).contains(container) {
            std::thread::yield_now();
        }
        Ok(left)
    }

    /// Whether somebody has killed it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(child.try_wait(), Ok(Some(_)))
    }
}

impl Drop for LeftProcess {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        let child = child.unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}
