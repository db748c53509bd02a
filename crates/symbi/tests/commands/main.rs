//! The command line as its users meet it: the built program, real workers, exit codes and words.

#[cfg(test)]
mod anchors;
#[cfg(test)]
mod client;
#[cfg(test)]
mod container_calls;
#[cfg(test)]
mod container_kills;
#[cfg(test)]
mod container_sessions;
#[cfg(test)]
mod containers;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod desk;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod engine_restarts;
#[cfg(test)]
mod hostile_agents;
#[cfg(test)]
mod manual;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod output;
#[cfg(test)]
mod progress;
#[cfg(test)]
mod run;
#[cfg(test)]
mod state_folder;
