//! The process that the owner execs: it makes init, maps its ids, and is gone.
//!
//! A process never becomes PID 1 of a new namespace by itself. This one makes init as its own
//! sibling, so that init is the owner's child and the owner's wait for it proves that the whole
//! pid namespace is gone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use crate::halt::{At, Halt};
use crate::init;
use crate::limits::{
    DESCRIPTORS_FIXED, FILTER_BYTES_MAX, FILTER_INSTRUCTIONS_MAX, GROUPS_MAX, INPUTS_MAX,
    PLAN_BYTES_MAX,
};
use crate::socket;
use crate::sys::{self, Forked};
use crate::wire::{GREETING, Identity, Plan, Reply, Speaker};

/// Exit code after a failure that the owner was told of.
pub(crate) const EXIT_FAILED: i32 = 71;
/// Exit code where the owner is gone.
pub(crate) const EXIT_OWNER_GONE: i32 = 72;

/// What the helper writes to init: the ids are mapped.
pub(crate) const MAPPED: u8 = b'm';
/// What the helper writes to init: it is in its cgroups.
pub(crate) const JOINED: u8 = b'j';

/// The descriptors that came with the plan.
pub(crate) struct Gifts {
    pub(crate) filters: Vec<Vec<u64>>,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) groups: Vec<File>,
    pub(crate) inputs: Vec<File>,
}

/// Runs the helper, and in its child init, and in that one's child the workload.
pub fn run() -> ! {
    let halt = match help() {
        Ok(()) => sys::exit(0),
        Err(halt) => halt,
    };
    report(halt, Speaker::Helper)
}

/// Tells the owner why this process ends, and ends it.
pub(crate) fn report(halt: Halt, speaker: Speaker) -> ! {
    let Some(Ok(bytes)) = halt.reply(speaker).map(|reply| reply.encode()) else {
        sys::exit(EXIT_OWNER_GONE)
    };
    let told = socket::send(io::stdin().as_fd(), &bytes, &[]);
    sys::exit(if told.is_ok() {
        EXIT_FAILED
    } else {
        EXIT_OWNER_GONE
    })
}

fn help() -> Result<(), Halt> {
    sys::close_inherited().at("close inherited descriptors")?;
    let (plan, mut gifts) = receive_plan()?;
    let (mut ours, inits) = UnixStream::pair().at("make a socket pair")?;
    let (forked, pidfd) = sys::clone_init().at("clone3")?;
    let Forked::Parent { pid } = forked else {
        drop(ours);
        gifts.groups.clear();
        init::run(&plan, gifts, inits)
    };
    drop(inits);
    // First of all, so that the owner can reap init whatever happens next.
    let pidfd = pidfd.ok_or_else(|| Halt::step("clone3 gave no pidfd"))?;
    let born = Reply::Born { pid }
        .encode()
        .map_err(|error| Halt::step(error.to_string()))?;
    socket::send(io::stdin().as_fd(), &born, &[pidfd.as_fd()]).at("send init's pidfd")?;
    map_ids(&plan, pid)?;
    ours.write_all(&[MAPPED]).at("wake init")?;
    // Joining can take a grace period of the kernel: it goes on beside init's own work.
    for mut group in gifts.groups {
        group
            .write_all(pid.to_string().as_bytes())
            .at("join a cgroup")?;
    }
    ours.write_all(&[JOINED]).at("wake init")
}

/// Waits for the helper's next word.
pub(crate) fn await_helper(sync: &mut UnixStream, word: u8) -> Result<(), Halt> {
    let mut byte = [0];
    match sync.read_exact(&mut byte) {
        Ok(()) if byte == [word] => Ok(()),
        _ => Err(Halt::OwnerGone),
    }
}

fn map_ids(plan: &Plan, pid: i32) -> Result<(), Halt> {
    let write = |file: &str, text: &str| {
        let path = format!("/proc/{pid}/{file}");
        let opened = OpenOptions::new().write(true).open(&path);
        opened
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .at(file)
    };
    match plan.identity {
        Identity::Range { first } => {
            let map = format!("0 {first} 1\n65534 {} 1\n", first.saturating_add(1));
            write("uid_map", &map)?;
            write("gid_map", &map)
        }
        Identity::Caller => {
            let uid = rustix::process::geteuid().as_raw();
            let gid = rustix::process::getegid().as_raw();
            write("setgroups", "deny")?;
            write("gid_map", &format!("65534 {gid} 1\n"))?;
            write("uid_map", &format!("65534 {uid} 1\n"))
        }
    }
}

fn receive_plan() -> Result<(Plan, Gifts), Halt> {
    let packet = socket::receive(io::stdin().as_fd(), GREETING.len() + 1).at("receive the plan")?;
    let packet = packet.ok_or(Halt::OwnerGone)?;
    if packet.bytes != GREETING {
        return Err(Halt::step(
            "the helper and the runtime are of different versions",
        ));
    }
    let count = packet.descriptors.len();
    let mut given = packet.descriptors.into_iter();
    let mut next = || {
        given
            .next()
            .ok_or_else(|| Halt::step("a descriptor is missing"))
    };
    let bytes = read_all(&File::from(next()?), PLAN_BYTES_MAX).at("read the plan")?;
    let plan = Plan::decode(&bytes).map_err(|error| Halt::step(format!("plan: {error}")))?;
    let filters = read_all(&File::from(next()?), FILTER_BYTES_MAX).at("read the filters")?;
    let filters = split_filters(&filters).ok_or_else(|| Halt::step("the filters are malformed"))?;
    let (stdin, stdout, stderr) = (next()?, next()?, next()?);
    let (groups, inputs) = (plan.groups as usize, plan.inputs.len());
    if groups > GROUPS_MAX || inputs > INPUTS_MAX || count != DESCRIPTORS_FIXED + groups + inputs {
        return Err(Halt::step("the number of descriptors is wrong"));
    }
    let gifts = Gifts {
        filters,
        stdin,
        stdout,
        stderr,
        groups: given.by_ref().take(groups).map(File::from).collect(),
        inputs: given.map(File::from).collect(),
    };
    Ok((plan, gifts))
}

/// The whole of `file`, from its start whatever its offset.
fn read_all(file: &File, max: usize) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if bytes > max {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    let mut content = vec![0; bytes];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

/// Filters are stored one after the other: the number of instructions, then the instructions,
/// each a 64-bit word.
fn split_filters(bytes: &[u8]) -> Option<Vec<Vec<u64>>> {
    let (words, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let mut filters = Vec::new();
    while let Some(length) = words.next() {
        let length = usize::try_from(length).ok()?;
        let filter: Vec<u64> = words.by_ref().take(length).collect();
        if length == 0 || length > FILTER_INSTRUCTIONS_MAX || filter.len() != length {
            return None;
        }
        filters.push(filter);
    }
    Some(filters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn filters_split_where_their_lengths_say() {
        assert_eq!(
            split_filters(&words(&[2, 7, 8, 1, 9])),
            Some(vec![vec![7, 8], vec![9]])
        );
        assert_eq!(split_filters(&[]), Some(vec![]));
    }

    #[test]
    fn filters_of_a_wrong_length_are_refused() {
        assert_eq!(split_filters(&words(&[2, 7])), None);
        assert_eq!(split_filters(&words(&[0])), None);
        assert_eq!(split_filters(&[1, 0, 0]), None);
        let past = FILTER_INSTRUCTIONS_MAX as u64 + 1;
        let mut long = vec![past];
        long.extend((0..past).map(|_| 0));
        assert_eq!(split_filters(&words(&long)), None);
        let mut at = vec![past - 1];
        at.extend((1..past).map(|_| 0));
        assert!(split_filters(&words(&at)).is_some());
    }
}
