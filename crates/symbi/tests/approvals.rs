//! A person's yes, as operators give it: on a terminal, and at the gate from another process.

#[expect(dead_code, reason = "the desk of all command line tests")]
#[path = "commands/desk.rs"]
#[cfg(test)]
mod desk;

#[cfg(test)]
#[path = "approvals/chat.rs"]
mod chat;
#[cfg(test)]
#[path = "approvals/gate.rs"]
mod gate;
#[cfg(test)]
#[path = "approvals/policy.rs"]
mod policy;
#[cfg(test)]
#[path = "approvals/terminal.rs"]
mod terminal;
#[cfg(test)]
#[path = "approvals/world.rs"]
mod world;
