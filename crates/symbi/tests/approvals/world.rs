//! A project with a tool that demands approval, and a terminal whose keys are pressed by a script.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::desk::Desk;

/// Reads commands (a JSON list) from its first argument, runs the rest under a terminal of its
/// own, and prints the end as JSON. `{id}` in what is typed is the held call's id on the screen.
const TYPIST: &str = r#"
import json, os, pty, re, select, sys, time
steps, command = json.loads(sys.argv[1]), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(command[0], command)
screen, seen = b"", 0
def more(seconds):
    global screen
    if select.select([terminal], [], [], seconds)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            data = b""
        screen += data
        return bool(data)
    return None
open_ = True
for step in steps:
    if "wait" in step:
        end = time.time() + 60
        while open_ and step["wait"].encode() not in screen[seen:]:
            open_ = more(1) is not False
            if time.time() > end:
                sys.exit("waited in vain for " + step["wait"] + "\n" + screen.decode())
        at = screen.find(step["wait"].encode(), seen)
        seen = at + len(step["wait"]) if at >= 0 else seen
    elif "type" in step:
        held = re.search(rb"held-[0-9a-f]{8}-[0-9a-f-]{27}", screen)
        text = step["type"].replace("{id}", held.group().decode() if held else "held-0")
        os.write(terminal, text.encode())
    elif "run" in step:
        held = re.search(rb"held-[0-9a-f]{8}-[0-9a-f-]{27}", screen)
        os.system(step["run"].replace("{id}", held.group().decode() if held else "held-0"))
    elif "close" in step:
        os.close(terminal)
        open_ = False
while open_:
    open_ = more(60) is True
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps({"code": code, "screen": screen.decode()}))
"#;

/// How a command on a terminal ended.
pub(crate) struct Screen {
    pub(crate) code: i64,
    pub(crate) text: String,
}

impl Screen {
    #[track_caller]
    pub(crate) fn expect(self, code: i64) -> Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }

    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        assert!(
            self.text.contains(words),
            "`{words}` is not in {}",
            self.text
        );
        self
    }
}

/// A project with `guarded`, which demands approval and creates a file.
pub(crate) fn guarded() -> Desk {
    let desk = Desk::empty();
    desk.symbi(&["init", "project"]).expect(0);
    let tools = desk.project().join("tools");
    let copy = fs::read_to_string(tools.join("copy_csv.clad.toml")).unwrap();
    let guarded = copy.replace(
        "name = \"copy_csv\"",
        "name = \"guarded\"\nhuman_approval = true",
    );
    fs::write(tools.join("guarded.clad.toml"), guarded).unwrap();
    fs::write(
        desk.project().join("policies/call/guarded.cedar"),
        "@id(\"guarded-with-a-yes\")\npermit(principal, action == \
         Action::\"tool_call::guarded\", resource) when { context.has_human_approval };\n\
         @id(\"never-to-secret\")\n@reason(\"that name is taken\")\nforbid(principal, action == \
         Action::\"tool_call::guarded\", resource) when { \
         context.invocation.arguments.output == \"out/secret.csv\" };\n",
    )
    .unwrap();
    desk.trust();
    desk
}

/// Appends to symbiont.toml and trusts the project again.
pub(crate) fn configure(desk: &Desk, text: &str) {
    let path = desk.project().join("symbiont.toml");
    let before = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{before}\n{text}")).unwrap();
    desk.trust();
}

/// The arguments of a call of `guarded`.
pub(crate) fn call<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let call = [
        "--project",
        "project",
        "call",
        "guarded",
        "--arg",
        "input=data/example.csv",
        "--arg",
        "output=out/new.csv",
    ];
    [&call, more].concat()
}

pub(crate) fn wait(words: &str) -> Value {
    json!({ "wait": words })
}

pub(crate) fn press(keys: &str) -> Value {
    json!({ "type": keys })
}

/// Runs `symbi` on a terminal while `steps` happen.
pub(crate) fn on_terminal(desk: &Desk, arguments: &[&str], steps: &[Value]) -> Screen {
    on_terminal_through(desk, &[env!("CARGO_BIN_EXE_symbi")], arguments, steps)
}

/// The same, with other words before the arguments.
pub(crate) fn on_terminal_through(
    desk: &Desk,
    program: &[&str],
    arguments: &[&str],
    steps: &[Value],
) -> Screen {
    let ended = Command::new("python3")
        .args(["-c", TYPIST, &Value::from(steps.to_vec()).to_string()])
        .args(program)
        .args(arguments)
        .current_dir(desk.path(""))
        .env("HOME", desk.path(""))
        .env("TMPDIR", desk.path("tmp"))
        .env("XDG_CONFIG_HOME", desk.path("config"))
        .env("XDG_STATE_HOME", desk.path("state"))
        .env("XDG_RUNTIME_DIR", desk.path("run"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    let said: Value = serde_json::from_str(&said)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&ended.stderr)));
    Screen {
        code: said["code"].as_i64().unwrap(),
        text: said["screen"].as_str().unwrap().to_owned(),
    }
}

/// Whether the guarded call had its effect.
pub(crate) fn created(desk: &Desk) -> bool {
    desk.project().join("out/new.csv").exists()
}

/// The last run's records of a kind.
pub(crate) fn records(desk: &Desk, kind: &str) -> Vec<Value> {
    let journal = desk.journals().pop().unwrap();
    let text = fs::read_to_string(journal).unwrap();
    text.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|record| record["event"]["kind"] == kind)
        .map(|record| record["event"].clone())
        .collect()
}
