//! `[sandbox.docker]` and `[sandbox.gvisor]`: what each key may say.

use project::{Config, ContainerNetwork, ContainerSettings};

const TIERS: [&str; 2] = ["docker", "gvisor"];

fn text(tier: &str, line: &str) -> String {
    format!(
        "[project]\nproduction = false\n[sandbox]\ntier = \"{tier}\"\n[sandbox.{tier}]\n\
         image = \"tools:1\"\n{line}\n"
    )
}

/// The line of `text` that a test is about.
const LINE: usize = 7;

fn read(tier: &str, line: &str) -> ContainerSettings {
    let config = Config::parse("symbiont.toml", &text(tier, line));
    let sandbox = config.unwrap_or_else(|error| panic!("{error}")).sandbox;
    let read = match tier {
        "docker" => sandbox.docker,
        _ => sandbox.gvisor,
    };
    read.unwrap()
}

/// What is said of a line that is refused.
fn refused(tier: &str, line: &str) -> String {
    let error = Config::parse("symbiont.toml", &text(tier, line)).expect_err(line);
    error.to_string()
}

fn on_both(check: impl Fn(&str)) {
    TIERS.into_iter().for_each(check);
}

#[test]
fn each_limit_of_a_container_is_read_in_its_unit() {
    on_both(|tier| {
        assert_eq!(read(tier, "memory_mib = 64").limits.memory_mib, 64);
        assert_eq!(read(tier, "cpus = 1.5").limits.cpu_milli, 1500);
        assert_eq!(read(tier, "pids = 9").limits.pids, 9);
        let seconds = read(tier, "max_execution_seconds = 7").limits;
        assert_eq!(seconds.time_ms, 7000);
        let bytes = read(tier, "max_output_bytes = 4096").limits;
        assert_eq!(bytes.stream_bytes, 4096);
        let scratch = read(tier, "scratch_mib = 3").limits;
        assert_eq!(scratch.scratch_bytes, 3 << 20);
    });
}

#[test]
fn a_limit_of_a_container_that_is_out_of_range_is_refused_at_its_place() {
    on_both(|tier| {
        for line in [
            "memory_mib = 15",
            "memory_mib = \"64\"",
            "cpus = 0",
            "cpus = 1.2345",
            "pids = 0",
            "max_execution_seconds = 0",
            "max_output_bytes = 0",
            "scratch_mib = 0",
        ] {
            let said = refused(tier, line);
            assert!(said.contains(&format!("symbiont.toml:{LINE}:")), "{said}");
        }
    });
}

#[test]
fn an_image_is_a_name_or_an_id_and_never_an_option() {
    let with = |image: &str| {
        let text = format!("[sandbox.docker]\nimage = \"{image}\"\n");
        Config::parse("symbiont.toml", &text)
    };
    let id = format!("sha256:{}", "a".repeat(64));
    for good in ["tools", "tools:1", "here.example:5000/a/b_c:1.2", &id] {
        let docker = with(good).unwrap().sandbox.docker.unwrap();
        assert_eq!(docker.image, good);
    }
    for bad in ["", "-v", "--privileged", "/etc", "a b", "a;b", "a?b", "ä"] {
        let said = with(bad).expect_err(bad).to_string();
        assert!(said.contains("symbiont.toml:2:9"), "{said}");
    }
}

#[test]
fn a_container_never_runs_as_root_however_it_is_written() {
    on_both(|tier| {
        for (written, uid, gid) in [("1001", 1001, 1001), ("1001:50", 1001, 50)] {
            let user = read(tier, &format!("user = \"{written}\"")).user;
            assert_eq!((user.uid(), user.gid()), (uid, gid));
        }
        let user = read(tier, "").user;
        assert_eq!((user.uid(), user.gid()), (65534, 65534));
        for root in ["0", "0:0", "00", "000:1", "1:0", "0:1001", "1001:00"] {
            let said = refused(tier, &format!("user = \"{root}\""));
            assert!(said.contains("never runs as root"), "{said}");
            assert!(said.contains(&format!("symbiont.toml:{LINE}:8")), "{said}");
        }
        for name in [
            "root",
            "nobody",
            "",
            ":",
            "1:",
            ":1",
            "-1",
            "+1",
            "0x0",
            " 1",
            "1:2:3",
            "4294967296",
        ] {
            let said = refused(tier, &format!("user = \"{name}\""));
            assert!(said.contains("is not UID:GID in numbers"), "{said}");
        }
    });
}

#[test]
fn a_container_has_no_network_or_outside_production_the_engines_own() {
    on_both(|tier| {
        assert_eq!(read(tier, "").network, ContainerNetwork::None);
        let none = read(tier, "network = \"none\"").network;
        assert_eq!(none, ContainerNetwork::None);
        let bridge = read(tier, "network = \"bridge\"").network;
        assert_eq!(bridge, ContainerNetwork::Bridge);
        for other in ["host", "container:x", "default", "Bridge", "mine", ""] {
            let said = refused(tier, &format!("network = \"{other}\""));
            assert!(said.contains("workers do not get the network"), "{said}");
            assert!(said.contains(&format!("symbiont.toml:{LINE}:11")), "{said}");
        }
        let production = text(tier, "network = \"bridge\"").replace("false", "true");
        let said = Config::parse("symbiont.toml", &production).unwrap_err();
        assert!(said.to_string().contains("lets workers out"), "{said}");
    });
}

#[test]
fn what_would_open_a_container_is_refused_with_the_reason() {
    on_both(|tier| {
        for (line, why) in [
            ("privileged = true", "no capability"),
            ("cap_add = [\"SYS_ADMIN\"]", "no capability"),
            ("devices = [\"/dev/sda\"]", "no device"),
            ("security_opt = [\"seccomp=unconfined\"]", "system calls"),
            ("pid = \"host\"", "namespaces of its own"),
            ("ipc = \"host\"", "namespaces of its own"),
            ("userns = \"host\"", "namespaces of its own"),
            ("mounts = []", "[filesystem]"),
            ("runtime = \"runc\"", "the tier says the runtime"),
            ("ports = [\"80:80\"]", "serves nothing"),
            ("args = [\"--privileged\"]", "this table alone"),
        ] {
            let said = refused(tier, line);
            assert!(said.contains("cannot be set"), "{said}");
            assert!(said.contains(why), "{said}");
            assert!(said.contains(&format!("symbiont.toml:{LINE}:")), "{said}");
        }
        let said = refused(tier, "memmory_mib = 64");
        assert!(said.contains("memory_mib"), "the nearest key: {said}");
    });
}

#[test]
fn a_volume_of_a_container_is_a_folder_of_the_host_without_options() {
    on_both(|tier| {
        let volume = read(tier, "volumes = [\"./d:/workspace/d:ro\"]").volumes;
        assert_eq!(volume[0].target, "/workspace/d");
        for bad in [
            "data:/workspace/d:ro:z",
            "./d:/workspace/d:ro,shared",
            "./d:/workspace/d:rshared",
            "./d:/workspace/d",
            "./d",
            "./d:relative:ro",
            "./d:/etc:ro",
            "./d:/workspace/../etc:ro",
        ] {
            let said = refused(tier, &format!("volumes = [\"{bad}\"]"));
            assert!(said.contains(&format!("symbiont.toml:{LINE}:12")), "{said}");
        }
        // A volume of the engine's has a name; a folder of the host's is a path.
        let said = refused(tier, "volumes = [\"cache:/workspace/d:ro\"]");
        assert!(said.contains("write ./NAME"), "{said}");
        let list = |count: usize| {
            let all: Vec<String> = (0..count)
                .map(|n| format!("\"./d{n}:/workspace/d{n}:ro\""))
                .collect();
            format!("volumes = [{}]", all.join(", "))
        };
        let most = project::limits::VOLUMES_MAX;
        assert_eq!(read(tier, &list(most)).volumes.len(), most);
        assert!(refused(tier, &list(most + 1)).contains("at most"));
    });
}

#[test]
fn a_working_folder_of_a_container_is_absolute_and_not_of_the_workers_own_root() {
    on_both(|tier| {
        let moved = read(tier, "working_dir = \"/job\"");
        assert_eq!(moved.working_dir, "/job");
        for bad in ["job", "/", "/proc/x", "/usr", "/a/../b", "/a//b", ""] {
            let said = refused(tier, &format!("working_dir = \"{bad}\""));
            assert!(said.contains(&format!("symbiont.toml:{LINE}:15")), "{said}");
        }
    });
}

#[test]
fn the_engines_socket_is_a_path() {
    on_both(|tier| {
        let named = read(tier, "socket = \"/run/other.sock\"").socket;
        assert!(named.is_some());
        for bad in ["tcp://192.0.2.1:2375", "unix:///run/docker.sock", ""] {
            let said = refused(tier, &format!("socket = \"{bad}\""));
            assert!(said.contains(&format!("symbiont.toml:{LINE}:10")), "{said}");
        }
    });
}
