//! What the demonstration needs of its machine, asked before anything is made or started.

use std::process::{Command, Stdio};

use crate::exit::{Exit, Failure};

/// Where a worker looks for it, in this order.
const PLACES: [&str; 2] = ["/usr/bin/python3", "/bin/python3"];

/// Tries a worker, and the Python that workers see.
pub(crate) fn check() -> Result<(), Failure> {
    check_python(&PLACES)?;
    crate::govern::namespace_tier(None)?
        .probe()
        .map_err(|error| Failure::of(Exit::Isolation, &error))
}

/// Finds a Python with `tomllib`.
fn check_python(places: &[&str]) -> Result<(), Failure> {
    let place = places
        .iter()
        .find(|place| std::path::Path::new(place).exists());
    let Some(place) = place else {
        return Err(missing(&format!("there is no {}", places.join(" or "))));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_that_is_missing_or_too_old_means_no_isolation() {
        // `false` ends as a Python without the module does.
        for (places, words) in [
            (["/no/python3", "/nor/python3"], "there is no /no/python3"),
            (["/bin/false", "/nor/python3"], "/bin/false has no module"),
        ] {
            let failure = check_python(&places).unwrap_err();
            assert_eq!(failure.exit, Exit::Isolation);
            assert!(failure.message.starts_with(words), "{}", failure.message);
            assert!(failure.help.is_some());
        }
    }
}
