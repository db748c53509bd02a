//! What `symbi run` knows of particular agents: how each is started so that it can only ask, and
//! how its own report is read. A module an agent.

pub(crate) mod claude_code;
