//! `symbi policy explain` and `symbi policy test`.

use std::fs;

use serde_json::Value;

use crate::world::guarded;

fn explain<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["--project", "project", "policy", "explain"], more].concat()
}

#[test]
fn a_permitted_call_is_explained_and_nothing_runs() {
    let desk = guarded();
    let copy = [
        "copy_csv",
        "--arg",
        "input=data/example.csv",
        "--arg",
        "output=out/x.csv",
    ];
    desk.symbi(&explain(&copy))
        .expect(0)
        .says("permit: copy_csv by operator")
        .says("by operator-may-copy")
        .says("Action::\"tool_call::copy_csv\"")
        .says("\"parent\": \"data\"");
    assert!(!desk.project().join("out/x.csv").exists());
    assert!(desk.journals().is_empty());
    let said = desk
        .symbi(&[&explain(&copy)[..], &["--json"]].concat())
        .expect(0);
    let said: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(said["verdict"], "permit");
    assert_eq!(said["needs_approval"], false);
    let files = &said["request"]["context"]["invocation"]["resolved"]["command_boundary"];
    assert_eq!(
        files["filesystem"]["read"]["input"]["path"],
        "data/example.csv"
    );
    desk.nothing_is_left();
}

#[test]
fn a_call_that_asks_a_person_is_explained_as_after_a_yes() {
    let desk = guarded();
    let good = [
        "guarded",
        "--arg",
        "input=data/example.csv",
        "--arg",
        "output=out/x.csv",
    ];
    desk.symbi(&explain(&good))
        .expect(0)
        .says("after a yes")
        .says("guarded-with-a-yes");
    let bad = [
        "guarded",
        "--arg",
        "input=data/example.csv",
        "--arg",
        "output=out/secret.csv",
    ];
    desk.symbi(&explain(&bad))
        .expect(3)
        .says("never-to-secret")
        .says("that name is taken");
}

#[test]
fn a_denied_and_a_refused_call_say_why() {
    let desk = guarded();
    let copy = [
        "copy_csv",
        "--arg",
        "input=data/example.csv",
        "--arg",
        "output=out/x.csv",
        "--as",
        "mcp",
    ];
    desk.symbi(&explain(&copy))
        .expect(3)
        .says("nothing permits `copy_csv`")
        .says("advice");
    let missing = ["word_count", "--arg", "input=data/none.csv"];
    desk.symbi(&explain(&missing))
        .expect(3)
        .says("refuse: word_count")
        .says("at prepare");
    desk.symbi(&explain(&["word_count", "--as", "operater"]))
        .expect(2)
        .says("did you mean `operator`?");
}

#[test]
fn a_table_of_expected_verdicts_passes_or_names_its_failing_rows() {
    let desk = guarded();
    let table = "[[case]]\ntool = \"word_count\"\narguments = { input = \"data/example.csv\" }\n\
                 expect = \"permit\"\nby = \"operator-may-count\"\n\
                 [[case]]\ntool = \"copy_csv\"\nas = \"mcp\"\narguments = { input = \
                 \"data/example.csv\", output = \"out/x.csv\" }\nexpect = \"deny\"\n\
                 [[case]]\ntool = \"word_count\"\nexpect = \"refuse\"\n";
    let test = ["--project", "project", "policy", "test", "table.toml"];
    fs::write(desk.path("table.toml"), table).unwrap();
    desk.symbi(&test).expect(0).says("3 passed, 0 failed");
    fs::write(
        desk.path("table.toml"),
        table.replace("\"deny\"", "\"permit\""),
    )
    .unwrap();
    desk.symbi(&test)
        .expect(1)
        .says("case 2: copy_csv by mcp: expected permit, got deny")
        .says("2 passed, 1 failed");
    for (bad, place) in [
        ("", "`table.toml`"),
        ("[[case]]\ntool = \"a\"\n", "table.toml:1:1: missing field"),
        ("\n[[cases]]\n", "table.toml:2:3: unknown field"),
        (
            "[[case]]\ntool = 1\nexpect = \"no\"\n",
            "table.toml:3:10: unknown variant",
        ),
        ("[[case]]\ntool\n", "table.toml:2:5: "),
    ] {
        fs::write(desk.path("table.toml"), bad).unwrap();
        desk.symbi(&test).expect(2).says(place).says("help: ");
    }
    assert!(desk.journals().is_empty());
}
