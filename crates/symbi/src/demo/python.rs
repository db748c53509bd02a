//! Whether the workers have the Python that the demonstration's tools need.

use std::process::{Command, Stdio};

use crate::exit::{Exit, Failure};

/// Where a worker looks for it, in this order.
const PLACES: [&str; 2] = ["/usr/bin/python3", "/bin/python3"];

/// Finds a Python with `tomllib`, before anything else is started.
pub(crate) fn check() -> Result<(), Failure> {
    let place = PLACES
        .into_iter()
        .find(|place| std::path::Path::new(place).exists());
    let Some(place) = place else {
        return Err(missing("there is no /usr/bin/python3"));
    };
    let ran = Command::new(place)
        .args(["-I", "-c", "import tomllib"])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match ran {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(missing(&format!("{place} has no module `tomllib`"))),
        Err(error) => Err(missing(&format!("{place} does not start: {error}"))),
    }
}

fn missing(what: &str) -> Failure {
    Failure::new(
        Exit::Isolation,
        format!("{what}, and the demonstration's workers need Python 3.11 or newer"),
    )
    .help(
        "install it where workers see it, in /usr/bin (Debian 12, Ubuntu 24.04: apt-get install \
         python3)",
    )
}
