//! `symbi gate show ID --file ARGUMENT`: a held call's input as the call will get it.

use approval::wire::{Input, InputText, Request, Response};
use approval::{HeldId, Review, framed, visible_bytes};
use serde_json::json;

use crate::commands::gate::client::RunGate;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Columns of a screen whose width nobody tells.
const COLUMNS: usize = 80;

/// Shows a part of an input, which must be one that the review names.
pub(super) fn show(
    gate: &RunGate<'_>,
    review: &Review,
    (held_id, input, offset): (HeldId, &str, u64),
    output: Output,
) -> Result<(), Failure> {
    let request = Request::Input(Input {
        held_id: held_id.clone(),
        input: input.to_owned(),
        offset,
    });
    let answer = gate.ask(&request);
    let part = match answer.map_err(|error| Failure::of(Exit::Refused, &error))? {
        Response::Input(part) if part.held_id == held_id && part.input == input => part,
        Response::Refused(refused) => {
            return Err(Failure::new(Exit::Refused, super::safe(&refused.reason)));
        }
        _ => {
            return Err(Failure::new(
                Exit::Refused,
                "the run answers something else",
            ));
        }
    };
    let content = part
        .content()
        .map_err(|error| Failure::of(Exit::Refused, &error))?;
    if !review.text().contains(&part.sha256.to_hex()) {
        return Err(Failure::new(
            Exit::Refused,
            "the run shows an input that the held call does not name",
        ));
    }
    if output.is_json() {
        output.value(&json!({
            "held_id": held_id, "input": input, "path": part.path, "bytes": part.bytes,
            "sha256": part.sha256, "offset": part.offset, "content_hex": part.content_hex,
        }));
    } else {
        tell(&part, &content, output);
    }
    Ok(())
}

fn tell(part: &InputText, content: &[u8], output: Output) {
    let end = part.offset + content.len() as u64;
    if !content.is_empty() {
        let shown = framed(&visible_bytes(content), columns());
        output.line(shown.strip_suffix('\n').unwrap_or(&shown));
    }
    let (path, bytes) = (super::safe(&part.path), part.bytes);
    output.note(&format!(
        "{path}: bytes {} to {end} of {bytes}, escaped; sha256 of all of it {}",
        part.offset, part.sha256
    ));
    if end < bytes {
        let (id, input) = (&part.held_id, super::safe(&part.input));
        output.note(&format!(
            "go on: symbi gate show {id} --file {input} --from {end}"
        ));
    }
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { COLUMNS } else { columns }
}
