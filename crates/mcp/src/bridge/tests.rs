use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::fixture::{server, text, tool};
use crate::{Connection, ConnectionLimits, Output, Tool};

const WAIT: Duration = Duration::from_secs(20);

#[test]
fn the_configuration_starts_the_bridge_in_isolated_mode() {
    let config = mcp_config("symbi", "/channel/bridge.py", "/channel/mcp.sock");
    let value: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(
        value,
        json!({"mcpServers": {"symbi": {
            "type": "stdio",
            "command": "python3",
            "args": ["-I", "/channel/bridge.py", "/channel/mcp.sock"],
        }}})
    );
    assert!(!config.contains('\n'), "{config}");
}

#[test]
fn odd_names_and_paths_stay_one_json_string_each() {
    let config = mcp_config("a\"b", "/x \\\n", "/ä");
    let value: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(value["mcpServers"]["a\"b"]["args"][1], "/x \\\n");
    assert_eq!(value["mcpServers"]["a\"b"]["args"][2], "/ä");
}

/// The bridge, started, and the broker's end of its connection.
struct Bridge {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: ChildStderr,
    socket: UnixStream,
    _folder: TempDir,
}

fn command(folder: &Path, socket: &Path) -> Command {
    let program = folder.join("bridge.py");
    fs::write(&program, BRIDGE_PY).unwrap();
    let mut command = Command::new("python3");
    command.arg("-I").arg(program).arg(socket);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Bridge {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mcp.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let child = command(folder.path(), &socket).spawn().unwrap();
        Self::accepted(child, &listener, folder)
    }

    fn accepted(mut child: Child, listener: &UnixListener, folder: TempDir) -> Self {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().map(BufReader::new),
            stderr: child.stderr.take().unwrap(),
            child,
            socket,
            _folder: folder,
        }
    }

    fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes.as_ref()).unwrap();
        stdin.flush().unwrap();
    }

    /// Closes our descriptor of the broker's end, as a broker does that has ended.
    fn close_socket(&mut self) {
        (self.socket, _) = UnixStream::pair().unwrap();
    }

    fn output(&mut self) -> &mut BufReader<ChildStdout> {
        self.stdout.as_mut().unwrap()
    }

    /// The exit code and what was written to standard error.
    fn finish(&mut self) -> (Option<i32>, String) {
        let deadline = Instant::now() + WAIT;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    self.child.kill().unwrap();
                    panic!("the bridge did not end");
                }
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let mut stderr = String::new();
        self.stderr.read_to_string(&mut stderr).unwrap();
        (status.code(), stderr)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads `stream` to its end in a thread of its own.
fn drained(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let _ = sender.send(bytes);
    });
    receiver
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn bytes_go_both_ways_as_they_come() {
    let mut bridge = Bridge::start();
    for message in [&b"one\n"[..], b"\x00\xff partial", b"\n"] {
        bridge.write(message);
        let mut seen = vec![0; message.len()];
        bridge.socket.read_exact(&mut seen).unwrap();
        assert_eq!(seen, message);
        bridge.socket.write_all(message).unwrap();
        let mut seen = vec![0; message.len()];
        bridge.output().read_exact(&mut seen).unwrap();
        assert_eq!(seen, message);
    }
}

#[test]
fn when_the_bridges_input_is_closed_it_copies_what_still_comes_and_exits_0() {
    let mut bridge = Bridge::start();
    bridge.write("last words");
    drop(bridge.stdin.take());
    let mut seen = Vec::new();
    bridge.socket.read_to_end(&mut seen).unwrap();
    assert_eq!(seen, b"last words");
    assert!(bridge.child.try_wait().unwrap().is_none());

    bridge.socket.write_all(b"answer\n").unwrap();
    bridge.socket.shutdown(Shutdown::Both).unwrap();
    let mut line = String::new();
    bridge.output().read_line(&mut line).unwrap();
    assert_eq!(line, "answer\n");
    assert_eq!(bridge.finish(), (Some(0), String::new()));
}

#[test]
fn when_the_socket_is_closed_first_the_bridge_exits_1_and_says_so() {
    let mut bridge = Bridge::start();
    bridge.socket.write_all(b"rest\n").unwrap();
    bridge.socket.shutdown(Shutdown::Both).unwrap();
    let mut line = String::new();
    bridge.output().read_line(&mut line).unwrap();
    assert_eq!(line, "rest\n");
    assert_eq!(
        bridge.finish(),
        (Some(1), "symbi bridge: the socket was closed\n".into())
    );
}

#[test]
fn when_the_broker_closes_with_unread_input_the_bridge_still_writes_what_came() {
    let mut bridge = Bridge::start();
    bridge.write(noise(100_000));
    bridge.socket.write_all(b"refused\n").unwrap();
    bridge.close_socket();
    let mut line = String::new();
    bridge.output().read_line(&mut line).unwrap();
    assert_eq!(line, "refused\n");
    let (code, stderr) = bridge.finish();
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("symbi bridge: the socket"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn megabytes_both_ways_at_once_arrive_whole_and_without_a_deadlock() {
    const BYTES: usize = 5 << 20;
    let mut bridge = Bridge::start();
    let data = noise(BYTES);
    let up = drained(bridge.socket.try_clone().unwrap());
    let mut stdin = bridge.stdin.take().unwrap();
    let mut socket = bridge.socket.try_clone().unwrap();
    let (upward, downward) = (data.clone(), data.clone());
    thread::spawn(move || stdin.write_all(&upward).unwrap());
    thread::spawn(move || {
        socket.write_all(&downward).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
    });
    let mut down = Vec::new();
    bridge.output().read_to_end(&mut down).unwrap();
    assert!(down == data);
    // The socket's own end came before or after that of standard input: both codes are right.
    let (code, _) = bridge.finish();
    assert!(matches!(code, Some(0 | 1)));
    bridge.socket.shutdown(Shutdown::Both).unwrap();
    let up = up.recv_timeout(WAIT).unwrap();
    assert!(data.starts_with(&up));
    assert!(code == Some(1) || up.len() == BYTES);
}

#[test]
fn a_broker_that_does_not_read_stops_the_bridge_from_reading() {
    let mut bridge = Bridge::start();
    let mut stdin = bridge.stdin.take().unwrap();
    let (sender, written) = mpsc::channel();
    thread::spawn(move || {
        let piece = noise(1 << 16);
        while stdin.write_all(&piece).is_ok() && sender.send(piece.len()).is_ok() {}
    });
    let mut total = 0;
    while let Ok(bytes) = written.recv_timeout(Duration::from_millis(500)) {
        total += bytes;
        assert!(total < 4 << 20, "the bridge buffers without bound");
    }
    // The other direction still works.
    bridge.socket.write_all(b"still here\n").unwrap();
    let mut line = String::new();
    bridge.output().read_line(&mut line).unwrap();
    assert_eq!(line, "still here\n");
}

#[test]
fn a_client_that_does_not_read_stops_the_broker_from_writing() {
    let mut bridge = Bridge::start();
    bridge
        .socket
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let piece = noise(1 << 16);
    let mut total = 0;
    while let Ok(bytes) = bridge.socket.write(&piece) {
        total += bytes;
        assert!(total < 4 << 20, "the bridge buffers without bound");
    }
    bridge.write("still here\n");
    let mut seen = [0; 11];
    bridge.socket.read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"still here\n");
}

#[test]
fn a_socket_path_longer_than_an_address_is_reached() {
    let folder = tempfile::tempdir().unwrap();
    let mut deep: PathBuf = folder.path().to_path_buf();
    while deep.as_os_str().len() < 300 {
        deep.push("d".repeat(60));
    }
    fs::create_dir_all(&deep).unwrap();
    // We cannot bind there ourselves: bind in a short place and move the socket.
    let short = folder.path().join("s");
    let listener = UnixListener::bind(&short).unwrap();
    let socket = deep.join("mcp.sock");
    fs::rename(&short, &socket).unwrap();
    let child = command(folder.path(), &socket).spawn().unwrap();
    let mut bridge = Bridge::accepted(child, &listener, folder);
    bridge.write("x");
    bridge.socket.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_socket_path_is_reached_at_the_length_of_an_address_and_one_past_it() {
    for length in [107, 108] {
        let folder = tempfile::tempdir().unwrap();
        let rest = length - folder.path().as_os_str().len() - "/".len() - "/s".len();
        let inner = folder.path().join("d".repeat(rest));
        fs::create_dir(&inner).unwrap();
        let short = folder.path().join("s");
        let listener = UnixListener::bind(&short).unwrap();
        let socket = inner.join("s");
        assert_eq!(socket.as_os_str().len(), length);
        fs::rename(&short, &socket).unwrap();
        let child = command(folder.path(), &socket).spawn().unwrap();
        let mut bridge = Bridge::accepted(child, &listener, folder);
        bridge.write("x");
        bridge.socket.read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn a_socket_that_nobody_listens_on_is_one_line_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("closed.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let output = command(folder.path(), &socket).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("takes no more connections"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn a_socket_that_is_not_there_is_one_line_and_exit_1() {
    let folder = tempfile::tempdir().unwrap();
    for socket in [
        folder.path().join("none"),
        folder.path().join("n/".repeat(80)).join("none"),
    ] {
        let output = command(folder.path(), &socket).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr.contains("cannot connect to"), "{stderr}");
        assert!(stderr.contains("No such file"), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn wrong_usage_is_one_line_and_exit_2() {
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path(), Path::new("a"))
        .arg("b")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .starts_with("usage: ")
    );
}

#[test]
fn an_interrupt_ends_the_bridge_without_a_traceback() {
    let mut bridge = Bridge::start();
    // It has started to copy, so its signals are set.
    bridge.write("x");
    bridge.socket.read_exact(&mut [0]).unwrap();
    let id = bridge.child.id().to_string();
    let status = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(status.success());
    assert_eq!(bridge.finish(), (None, String::new()));
}

#[test]
fn a_client_that_stops_reading_is_one_line_and_exit_1() {
    let mut bridge = Bridge::start();
    drop(bridge.stdout.take());
    bridge.socket.write_all(b"nobody reads this\n").unwrap();
    let (code, stderr) = bridge.finish();
    assert_eq!(code, Some(1));
    assert_eq!(
        stderr,
        "symbi bridge: standard output failed: Broken pipe\n"
    );
}

#[test]
fn the_bridge_is_valid_for_python_3_7_and_imports_only_the_standard_library() {
    let check = "import ast,sys\n\
        tree = ast.parse(sys.stdin.read(), feature_version=(3, 7))\n\
        print(*sorted(a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names))\n\
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]";
    let mut child = Command::new("python3")
        .args(["-I", "-c", check])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(BRIDGE_PY.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let names = String::from_utf8(output.stdout).unwrap();
    assert_eq!(names, "errno os select signal socket sys\n");
}

/// Serves one connection with the machine, as a broker does; every call is answered with its name.
fn serve(mut socket: UnixStream) {
    let tools: Arc<[Tool]> = Arc::new([tool("read_a"), tool("write_b")]);
    let mut connection = Connection::new(&server(), tools, ConnectionLimits::broker());
    let mut buffer = [0; 4096];
    loop {
        let mut outputs = Vec::new();
        match socket.read(&mut buffer).unwrap() {
            0 => connection.eof(&mut outputs),
            bytes => connection.feed(&buffer[..bytes], &mut outputs),
        }
        for output in outputs {
            match output {
                Output::Send(frame) => socket.write_all(&frame).unwrap(),
                Output::Call(call) => {
                    let frame = connection.answer(call.ticket, &text(&call.name)).unwrap();
                    socket.write_all(&frame).unwrap();
                }
                Output::Withdraw(_) => {}
                Output::End(_) => return,
            }
        }
    }
}

#[test]
fn over_the_bridge_initialize_initialized_and_tools_list_give_exactly_the_tools() {
    let mut bridge = Bridge::start();
    let socket = bridge.socket.try_clone().unwrap();
    bridge.close_socket();
    let broker = thread::spawn(move || serve(socket));
    let mut ask = |frames: &[Value]| -> Value {
        bridge.write(
            frames
                .iter()
                .map(|frame| format!("{frame}\n"))
                .collect::<String>(),
        );
        let mut line = String::new();
        bridge.output().read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let initialize = ask(&[
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }}),
    ]);
    assert_eq!(initialize["result"]["protocolVersion"], "2025-11-25");
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let list = ask(&[initialized, list]);
    let names: Vec<&Value> = list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["read_a", "write_b"]);
    let call = ask(&[json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "read_a", "arguments": {}}})]);
    assert_eq!(call["result"]["content"][0]["text"], "read_a");

    drop(bridge.stdin.take());
    broker.join().unwrap();
    assert_eq!(bridge.finish(), (Some(0), String::new()));
}
