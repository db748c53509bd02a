//! `[session]`: a program that stays, and the commands that it accepts.

use std::collections::BTreeMap;

use model::ArgumentName;

use super::backends::Reading;
use super::{arguments, command, prose, read_risk_tier};
use crate::backend::{SessionBackend, SessionCommand, SessionLimits};
use crate::limits::{
    INTERACTIONS_MAX, LIMIT_VALUE_MAX, OUTPUT_WAIT_MS_MAX, SESSION_COMMANDS_MAX,
    TIMEOUT_SECONDS_MAX,
};
use crate::pattern::Pattern;
use crate::reader::{Faults, Section};

pub(super) fn read(
    mut section: Section<'_>,
    reading: &Reading<'_>,
    faults: &mut Faults<'_>,
) -> Option<SessionBackend> {
    let startup = command::read_startup(&mut section, reading.binary, reading.arguments, faults);
    let ready_pattern = read_pattern(&mut section, "ready_pattern", faults);
    let limits = read_limits(&mut section, faults);
    let commands = match section.table(faults, "commands") {
        Some(table) => read_commands(&table, reading, faults),
        None => {
            section.missing(
                faults,
                "commands",
                "list what the session accepts: `[session.commands.NAME]`",
            );
            BTreeMap::new()
        }
    };
    if reading.creates && !commands.values().any(|command| command.finalize) {
        let message = "the session creates a file, and no command has `finalize = true`";
        let help = "its output is published after a command that ends the session";
        faults.add(section.place.clone(), message, help);
    }
    section.finish(faults);
    Some(SessionBackend {
        startup: startup?,
        ready_pattern: ready_pattern?.source().to_owned(),
        limits,
        commands,
    })
}

pub(super) fn read_pattern(
    section: &mut Section<'_>,
    key: &'static str,
    faults: &mut Faults<'_>,
) -> Option<Pattern> {
    let Some(given) = section.string(faults, key) else {
        if section.entry(key).is_none() {
            section.missing(faults, key, "a regular expression");
        }
        return None;
    };
    match Pattern::new(given.get_ref()) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            faults.add(
                given.span(),
                error.to_string(),
                "correct the regular expression",
            );
            None
        }
    }
}

fn read_limits(section: &mut Section<'_>, faults: &mut Faults<'_>) -> SessionLimits {
    let mut seconds = |key, default| {
        section
            .bounded(faults, key, TIMEOUT_SECONDS_MAX)
            .unwrap_or(default)
    };
    let mut limits = SessionLimits {
        startup_seconds: seconds("startup_timeout_seconds", 30),
        idle_seconds: seconds("idle_timeout_seconds", 300),
        session_seconds: seconds("session_timeout_seconds", 1800),
        interactions: 100,
        output_bytes: 1 << 20,
        output_wait_ms: 2000,
    };
    if let Some(interactions) = section.bounded(faults, "max_interactions", INTERACTIONS_MAX) {
        limits.interactions = interactions;
    }
    if let Some(mut table) = section.table(faults, "interaction") {
        super::kinds::read_sanitize(&mut table, "input_sanitize", faults);
        if let Some(bytes) = table.bounded(faults, "output_max_bytes", LIMIT_VALUE_MAX) {
            limits.output_bytes = bytes;
        }
        if let Some(wait) = table.bounded(faults, "output_wait_ms", OUTPUT_WAIT_MS_MAX) {
            limits.output_wait_ms = wait;
        }
        table.finish(faults);
    }
    limits
}

fn read_commands(
    table: &Section<'_>,
    reading: &Reading<'_>,
    faults: &mut Faults<'_>,
) -> BTreeMap<String, SessionCommand> {
    let mut commands = BTreeMap::new();
    if !table.at_most(SESSION_COMMANDS_MAX, faults) {
        return commands;
    }
    for (key, value) in table.entries() {
        if let Err(error) = ArgumentName::new(*key.get_ref()) {
            faults.add(
                key.span(),
                error.to_string(),
                "rename the command, like `show_table`",
            );
            continue;
        }
        let command = table
            .section(faults, &key, value)
            .and_then(|section| read_command(section, reading, faults));
        if let Some(command) = command {
            commands.insert((*key.get_ref()).to_owned(), command);
        }
    }
    commands
}

fn read_command(
    mut section: Section<'_>,
    reading: &Reading<'_>,
    faults: &mut Faults<'_>,
) -> Option<SessionCommand> {
    let pattern = read_pattern(&mut section, "pattern", faults);
    let described = read_described(&mut section, faults);
    let extract_target = section.flag(faults, "extract_target");
    let finalize = section.flag(faults, "finalize");
    let table = section.table(faults, "args");
    let arguments = arguments::read(table, reading.types, faults);
    section.finish(faults);
    let (description, risk_tier, human_approval) = described?;
    Some(SessionCommand {
        pattern: pattern?,
        description,
        risk_tier,
        human_approval,
        extract_target,
        finalize,
        arguments: arguments.specs,
    })
}

/// What session and browser commands both say.
pub(super) fn read_described(
    section: &mut Section<'_>,
    faults: &mut Faults<'_>,
) -> Option<(String, model::RiskTier, bool)> {
    let description = match section.string(faults, "description") {
        Some(given) => prose(&section.name_of("description"), &given, faults),
        None => {
            if section.entry("description").is_none() {
                section.missing(faults, "description", "say what the command does");
            }
            None
        }
    };
    let risk_tier = read_risk_tier(section, faults);
    let human_approval = section.flag(faults, "human_approval");
    Some((description?, risk_tier?, human_approval))
}
