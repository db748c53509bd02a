//! What the owner tells the helper, and what the helper answers.
//!
//! The plan is read from a sealed memory file, the replies are packets of one socket. Both are
//! lists of fields in a fixed order, each text with its length before it; numbers are little
//! endian. Decoding is strict: another version, a missing or left-over byte, a wrong tag, a text
//! with a zero byte or a list past its bound is an error. Owner and helper are built together,
//! so there is one version and no negotiation.

mod codec;

use crate::limits::{PLAN_BYTES_MAX, REASON_BYTES_MAX, REPLY_BYTES_MAX};

pub use codec::WireError;
use codec::{Reader, Writer, tag};

/// The content of the packet that carries the descriptors.
pub const GREETING: &[u8] = b"symbi-init 1";
const PLAN_TAG: u32 = 0x4e41_4c50;
const REPLY_TAG: u32 = 0x4c50_4552;

/// Whose host identity the worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Root's worker: two host ids, `first` for init and `first + 1` for the workload.
    Range { first: u32 },
    /// An ordinary user's worker: the caller's own id.
    Caller,
}

/// A file inside the worker that must still be the one that was authorized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundFile {
    /// Absolute path inside the worker; links are followed.
    pub path: String,
    pub stamp: FileStamp,
}

/// What tells one state of one file from every other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileStamp {
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    /// Seconds and nanoseconds.
    pub modified: (i64, u32),
    pub changed: (i64, u32),
}

/// A file of the host, shown read-only beside the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownFile {
    pub host: String,
    pub path: String,
    pub stamp: FileStamp,
}

/// One input; its bytes come by a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Absolute path inside the worker.
    pub path: String,
    pub bytes: u64,
}

/// How the output appears to the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    File,
    Fresh,
}

/// The one file that may leave the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Absolute path inside the worker.
    pub path: String,
    pub mode: OutputMode,
}

/// Limits that init sets on the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Processes and threads of the workload.
    pub processes: u64,
    pub file_bytes: u64,
    pub scratch_bytes: u64,
    /// Where no cgroup bounds the memory: RLIMIT_DATA.
    pub data_bytes: Option<u64>,
    /// Where no cgroup bounds the CPU: RLIMIT_CPU.
    pub cpu_seconds: Option<u64>,
    /// Every Landlock feature that the rules use is there.
    pub landlock_whole: bool,
}

/// What the worker is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Make everything, run nothing: the tier asks whether this host can.
    Probe,
    Run(Run),
}

/// The program of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Absolute path inside the worker.
    pub program: String,
    pub argv: Vec<String>,
    /// `NAME=value`.
    pub environment: Vec<String>,
    pub bound: Vec<BoundFile>,
}

/// Everything that the helper needs to make one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub identity: Identity,
    /// Number of descriptors of `cgroup.procs` files.
    pub groups: u32,
    /// Host folders that the root shows besides its own.
    pub also: Vec<String>,
    pub working_dir: String,
    /// The working directory is scratch space (an agent's).
    pub working_dir_writable: bool,
    /// Host path of the folder that is shown at `/channel`.
    pub channel: Option<String>,
    pub program_file: Option<ShownFile>,
    pub inputs: Vec<Input>,
    pub output: Option<Output>,
    pub bounds: Bounds,
    pub task: Task,
}

/// Which of the three processes speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    Helper,
    Init,
    Workload,
}

/// How the workload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Exited(i32),
    Signaled(i32),
}

/// What became of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputReport {
    NotGranted,
    /// The file's descriptor comes with the reply.
    Written,
    Unusable {
        reason: String,
    },
}

/// A step of making a worker that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub speaker: Speaker,
    pub step: String,
    /// 0 where no system call failed.
    pub errno: i32,
}

/// What the helper or init says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Init lives; its pidfd comes with the reply.
    Born {
        pid: i32,
    },
    /// The workload's first instruction is about to run.
    Started,
    Failed(Failure),
    /// A bound file is not the one that was authorized.
    Changed {
        path: String,
    },
    /// Every process but init is gone.
    Ended {
        status: Status,
        ran_micros: u64,
        output: OutputReport,
    },
}

impl Plan {
    /// The bytes of this plan.
    ///
    /// # Errors
    /// [`WireError`] for a text with a zero byte and for a plan past its bound.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut out = Writer::new(PLAN_TAG);
        match self.identity {
            Identity::Caller => out.byte(0),
            Identity::Range { first } => {
                out.byte(1);
                out.word(first);
            }
        }
        out.word(self.groups);
        out.texts("also", &self.also)?;
        out.text("working_dir", &self.working_dir)?;
        out.flag(self.working_dir_writable);
        out.option(self.channel.as_ref(), |out, path| out.text("channel", path))?;
        out.option(self.program_file.as_ref(), |out, file| {
            out.text("host", &file.host)?;
            out.text("path", &file.path)?;
            out.stamp(&file.stamp);
            Ok(())
        })?;
        out.list("inputs", &self.inputs, |out, input| {
            out.text("input", &input.path)?;
            out.number(input.bytes);
            Ok(())
        })?;
        out.option(self.output.as_ref(), |out, output| {
            out.text("output", &output.path)?;
            out.flag(output.mode == OutputMode::Fresh);
            Ok(())
        })?;
        out.bounds(&self.bounds)?;
        match &self.task {
            Task::Probe => out.byte(0),
            Task::Run(run) => {
                out.byte(1);
                out.text("program", &run.program)?;
                out.texts("argv", &run.argv)?;
                out.texts("environment", &run.environment)?;
                out.list("bound", &run.bound, |out, file| {
                    out.text("bound", &file.path)?;
                    out.stamp(&file.stamp);
                    Ok(())
                })?;
            }
        }
        out.finish("plan", PLAN_BYTES_MAX)
    }

    /// The plan of these bytes.
    ///
    /// # Errors
    /// [`WireError`] names the first thing that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader::new(PLAN_TAG, "plan", bytes, PLAN_BYTES_MAX)?;
        let plan = Self {
            identity: match from.byte("identity")? {
                0 => Identity::Caller,
                1 => Identity::Range {
                    first: from.word("first")?,
                },
                value => return Err(tag("identity", value)),
            },
            groups: from.word("groups")?,
            also: from.texts("also")?,
            working_dir: from.text("working_dir")?,
            working_dir_writable: from.flag("working_dir_writable")?,
            channel: from.option("channel", |from| from.text("channel"))?,
            program_file: from.option("program_file", |from| {
                Ok(ShownFile {
                    host: from.text("host")?,
                    path: from.text("path")?,
                    stamp: from.stamp()?,
                })
            })?,
            inputs: from.list("inputs", |from| {
                Ok(Input {
                    path: from.text("input")?,
                    bytes: from.number("bytes")?,
                })
            })?,
            output: from.option("output", |from| {
                Ok(Output {
                    path: from.text("output")?,
                    mode: match from.flag("mode")? {
                        false => OutputMode::File,
                        true => OutputMode::Fresh,
                    },
                })
            })?,
            bounds: from.bounds()?,
            task: match from.byte("task")? {
                0 => Task::Probe,
                1 => Task::Run(from.run()?),
                value => return Err(tag("task", value)),
            },
        };
        from.finish()?;
        Ok(plan)
    }
}

impl Reply {
    /// The bytes of this reply; long texts are cut.
    ///
    /// # Errors
    /// [`WireError`] for a text with a zero byte.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut out = Writer::new(REPLY_TAG);
        match self {
            Self::Born { pid } => {
                out.byte(0);
                out.signed(*pid);
            }
            Self::Started => out.byte(1),
            Self::Failed(failure) => {
                out.byte(2);
                out.byte(match failure.speaker {
                    Speaker::Helper => 0,
                    Speaker::Init => 1,
                    Speaker::Workload => 2,
                });
                out.text("step", cut(&failure.step))?;
                out.signed(failure.errno);
            }
            Self::Changed { path } => {
                out.byte(3);
                out.text("path", cut(path))?;
            }
            Self::Ended {
                status,
                ran_micros,
                output,
            } => {
                out.byte(4);
                let (kind, value) = match status {
                    Status::Exited(code) => (0, *code),
                    Status::Signaled(signal) => (1, *signal),
                };
                out.byte(kind);
                out.signed(value);
                out.number(*ran_micros);
                match output {
                    OutputReport::NotGranted => out.byte(0),
                    OutputReport::Written => out.byte(1),
                    OutputReport::Unusable { reason } => {
                        out.byte(2);
                        out.text("reason", cut(reason))?;
                    }
                }
            }
        }
        out.finish("reply", REPLY_BYTES_MAX)
    }

    /// The reply of these bytes.
    ///
    /// # Errors
    /// [`WireError`] names the first thing that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader::new(REPLY_TAG, "reply", bytes, REPLY_BYTES_MAX)?;
        let reply = match from.byte("reply")? {
            0 => Self::Born {
                pid: from.signed("pid")?,
            },
            1 => Self::Started,
            2 => Self::Failed(Failure {
                speaker: match from.byte("speaker")? {
                    0 => Speaker::Helper,
                    1 => Speaker::Init,
                    2 => Speaker::Workload,
                    value => return Err(tag("speaker", value)),
                },
                step: from.text("step")?,
                errno: from.signed("errno")?,
            }),
            3 => Self::Changed {
                path: from.text("path")?,
            },
            4 => {
                let kind = from.byte("status")?;
                let value = from.signed("status")?;
                Self::Ended {
                    status: match kind {
                        0 => Status::Exited(value),
                        1 => Status::Signaled(value),
                        value => return Err(tag("status", value)),
                    },
                    ran_micros: from.number("ran")?,
                    output: match from.byte("output")? {
                        0 => OutputReport::NotGranted,
                        1 => OutputReport::Written,
                        2 => OutputReport::Unusable {
                            reason: from.text("reason")?,
                        },
                        value => return Err(tag("output", value)),
                    },
                }
            }
            value => return Err(tag("reply", value)),
        };
        from.finish()?;
        Ok(reply)
    }
}

/// At most [`REASON_BYTES_MAX`] bytes of `text`, whole characters.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::codec::VERSION;
    use super::*;

    fn stamp(seed: u64) -> FileStamp {
        FileStamp {
            device: seed,
            inode: u64::MAX - seed,
            bytes: seed << 20,
            modified: (-1, 999_999_999),
            changed: (i64::MAX, 0),
        }
    }

    fn plan() -> Plan {
        Plan {
            identity: Identity::Range {
                first: 2_000_000_000,
            },
            groups: 3,
            also: vec!["/opt/tools".to_owned()],
            working_dir: "/workspace".to_owned(),
            working_dir_writable: true,
            channel: Some("/run/ch\u{e4}nnel".to_owned()),
            program_file: Some(ShownFile {
                host: "/opt/x".to_owned(),
                path: "/opt/agent/x".to_owned(),
                stamp: stamp(1),
            }),
            inputs: vec![Input {
                path: "/workspace/a b".to_owned(),
                bytes: 7,
            }],
            output: Some(Output {
                path: "/workspace/o".to_owned(),
                mode: OutputMode::Fresh,
            }),
            bounds: Bounds {
                processes: 64,
                file_bytes: 1,
                scratch_bytes: u64::MAX,
                data_bytes: Some(1 << 30),
                cpu_seconds: None,
                landlock_whole: true,
            },
            task: Task::Run(Run {
                program: "/usr/bin/x".to_owned(),
                argv: vec!["x".to_owned(), String::new(), "-".repeat(70_000)],
                environment: vec!["A=1".to_owned()],
                bound: vec![BoundFile {
                    path: "/usr/bin/x".to_owned(),
                    stamp: stamp(2),
                }],
            }),
        }
    }

    fn small_plan() -> Plan {
        let mut plan = plan();
        plan.identity = Identity::Caller;
        plan.channel = None;
        plan.program_file = None;
        plan.output = None;
        plan.task = Task::Probe;
        plan
    }

    fn replies() -> Vec<Reply> {
        let ended = |status, output| Reply::Ended {
            status,
            ran_micros: 12,
            output,
        };
        vec![
            Reply::Born { pid: 7 },
            Reply::Started,
            Reply::Failed(Failure {
                speaker: Speaker::Workload,
                step: "execute /x".to_owned(),
                errno: 2,
            }),
            Reply::Changed {
                path: "/usr/bin/x".to_owned(),
            },
            ended(Status::Exited(3), OutputReport::NotGranted),
            ended(Status::Signaled(9), OutputReport::Written),
            ended(
                Status::Exited(0),
                OutputReport::Unusable {
                    reason: "a folder".to_owned(),
                },
            ),
        ]
    }

    #[test]
    fn plans_and_replies_come_back_as_they_were() {
        for plan in [plan(), small_plan()] {
            assert_eq!(Plan::decode(&plan.encode().unwrap()).unwrap(), plan);
        }
        for reply in replies() {
            assert_eq!(Reply::decode(&reply.encode().unwrap()).unwrap(), reply);
        }
    }

    #[test]
    fn a_cut_or_longer_message_is_refused() {
        let mut messages: Vec<Vec<u8>> = replies()
            .iter()
            .map(|reply| reply.encode().unwrap())
            .collect();
        for bytes in &mut messages {
            for end in 0..bytes.len() {
                assert!(Reply::decode(&bytes[..end]).is_err());
            }
            bytes.push(0);
            assert!(Reply::decode(bytes).is_err());
        }
        let mut bytes = small_plan().encode().unwrap();
        for end in 0..bytes.len() {
            assert!(Plan::decode(&bytes[..end]).is_err());
        }
        bytes.push(0);
        assert_eq!(Plan::decode(&bytes), Err(WireError::LeftOver { bytes: 1 }));
    }

    #[test]
    fn a_changed_byte_never_panics_and_decodes_to_what_encodes_alike() {
        let mut whole = plan();
        whole.task = Task::Probe;
        let bytes = whole.encode().unwrap();
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= flip;
                if let Ok(decoded) = Plan::decode(&changed) {
                    assert_eq!(decoded.encode().unwrap(), changed, "byte {at}");
                }
            }
        }
    }

    #[test]
    fn another_kind_or_version_is_refused() {
        let plan = small_plan().encode().unwrap();
        assert_eq!(Reply::decode(&plan[..20]), Err(WireError::Version));
        let mut next = plan;
        next[4] = 2;
        assert_eq!(Plan::decode(&next), Err(WireError::Version));
    }

    #[test]
    fn a_zero_byte_in_a_text_is_refused_both_ways() {
        let mut plan = small_plan();
        plan.working_dir = "/a\0b".to_owned();
        assert!(matches!(plan.encode(), Err(WireError::Text { .. })));
        plan.working_dir = "/a?b".to_owned();
        let mut bytes = plan.encode().unwrap();
        let at = bytes.iter().position(|byte| *byte == b'?').unwrap();
        bytes[at] = 0;
        assert!(matches!(Plan::decode(&bytes), Err(WireError::Text { .. })));
    }

    #[test]
    fn a_plan_at_its_bound_passes_and_one_byte_more_is_refused() {
        let mut plan = small_plan();
        let rest = plan.encode().unwrap().len() - plan.working_dir.len();
        plan.working_dir = "x".repeat(PLAN_BYTES_MAX - rest);
        let bytes = plan.encode().unwrap();
        assert_eq!(bytes.len(), PLAN_BYTES_MAX);
        assert_eq!(Plan::decode(&bytes).unwrap(), plan);
        plan.working_dir.push('x');
        assert!(matches!(plan.encode(), Err(WireError::TooLong { .. })));
        assert!(matches!(
            Plan::decode(&vec![0; PLAN_BYTES_MAX + 1]),
            Err(WireError::TooLong { .. })
        ));
    }

    #[test]
    fn a_list_past_its_bound_is_refused_before_it_is_read() {
        let mut bytes = PLAN_TAG.to_le_bytes().to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.push(0);
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(u32::MAX.to_le_bytes());
        assert!(matches!(
            Plan::decode(&bytes),
            Err(WireError::TooLong { field: "also", .. })
        ));
    }

    #[test]
    fn long_reasons_are_cut_at_a_character() {
        let reply = Reply::Changed {
            path: "\u{e4}".repeat(REPLY_BYTES_MAX),
        };
        match Reply::decode(&reply.encode().unwrap()).unwrap() {
            Reply::Changed { path } => assert_eq!(path.len(), REASON_BYTES_MAX),
            other => panic!("{other:?}"),
        }
    }
}
