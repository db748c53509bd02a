//! What a shell and `man` are told of the command line.

use std::fs;

use crate::desk::Desk;

#[test]
fn completions_name_every_command_and_a_shell_takes_them() {
    let desk = Desk::empty();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = desk.symbi(&["completions", shell]).expect(0).stdout;
        for command in ["call", "invocation", "file-recover", "approval-terminal"] {
            assert!(script.contains(command), "{shell}: no {command}");
        }
    }
    let listed = desk.shell(
        "source <(\"$0\" completions bash); COMP_WORDS=(symbi au); COMP_CWORD=1; \
         _symbi symbi au symbi; printf '%s\\n' \"${COMPREPLY[@]}\"",
        &[],
    );
    assert_eq!(listed.expect(0).stdout, "audit\n");
    desk.symbi(&["completions", "tcsh"])
        .expect(2)
        .says("possible values");
    let json = desk.symbi(&["completions", "fish", "--json"]).expect(0);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert!(
        json["script"]
            .as_str()
            .unwrap()
            .contains("complete -c symbi")
    );
}

#[test]
fn there_is_a_page_for_every_command_and_a_later_version_replaces_it() {
    let desk = Desk::empty();
    desk.symbi(&["manual", "man1"])
        .expect(2)
        .says("`man1` is not a folder")
        .says("mkdir -p man1");
    fs::create_dir(desk.path("man1")).unwrap();
    fs::write(desk.path("man1/symbi-call.1"), "old").unwrap();
    desk.symbi(&["manual", "man1"]).expect(0).says("man symbi");
    let read = |name: &str| fs::read_to_string(desk.path("man1").join(name)).unwrap();
    assert!(read("symbi-call.1").contains("invocation\\-id"));
    assert!(read("symbi.1").contains("symbi\\-audit(1)"));
    assert!(!desk.path("man1/symbi-faults.1").exists());
}
