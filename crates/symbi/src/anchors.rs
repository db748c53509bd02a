//! The user's anchors: all that are configured get every run's heads, and answer for them later.

use std::path::{Path, PathBuf};

use journal::{Anchor, AnchorError, AnchorTarget, Anchors, Checkpoint, PublicKey, RunSigner};
use model::RunId;
use project::{AnchorPlace, UserConfig};

use crate::exit::{Exit, Failure, chain};
use crate::files::open_regular;
use crate::open::OpenProject;
use crate::output::Output;

/// The sender to all configured anchors; none where there are none.
pub(crate) fn configured(
    open: &OpenProject,
    signer: RunSigner,
) -> Result<Option<Anchors>, Failure> {
    let user = load(open)?;
    if user.anchors.is_empty() {
        return Ok(None);
    }
    let anchors = user.anchors.into_iter().map(|(name, anchor)| Anchor {
        name,
        target: match anchor.place {
            AnchorPlace::File(path) => AnchorTarget::File(path),
            AnchorPlace::Command(argv) => AnchorTarget::Command {
                argv,
                environment: crate::dirs::command_environment(),
            },
        },
        required: anchor.required,
    });
    Ok(Some(Anchors::start(anchors.collect(), signer, report)))
}

fn report(error: &AnchorError) {
    let word = if error.required { "error" } else { "warning" };
    Output::new(false).note(&format!("{word}: {}", chain(error)));
}

/// The heads of `run` that the configured anchor files, and the `named` ones, keep.
pub(crate) fn heads(
    open: Option<&OpenProject>,
    named: &[PathBuf],
    run: RunId,
    key: &PublicKey,
) -> Result<Vec<Checkpoint>, Failure> {
    let mut heads = Vec::new();
    for path in named {
        heads.extend(read(path, run, key)?);
    }
    let Some(open) = open else {
        return Ok(heads);
    };
    for anchor in load(open)?.anchors.values() {
        match &anchor.place {
            // An anchor that no run has reached yet has no file.
            AnchorPlace::File(path) if path.exists() => heads.extend(read(path, run, key)?),
            AnchorPlace::File(_) | AnchorPlace::Command(_) => {}
        }
    }
    Ok(heads)
}

fn read(path: &Path, run: RunId, key: &PublicKey) -> Result<Vec<Checkpoint>, Failure> {
    open_regular(path)
        .and_then(|file| journal::read_anchors(file, run, key))
        .map_err(|error| {
            let shown = path.display();
            Failure::new(
                Exit::Usage,
                format!("the anchor `{shown}` cannot be read: {error}"),
            )
        })
}

fn load(open: &OpenProject) -> Result<UserConfig, Failure> {
    UserConfig::load(&open.dirs).map_err(|error| Failure::of(Exit::Usage, &error))
}
