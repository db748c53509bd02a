//! The example for programs that embed the runtime does what it says.

#[expect(dead_code, reason = "its `main` is for who runs it")]
#[path = "../../examples/governed_session.rs"]
mod example;

#[tokio::test]
async fn the_example_serves_a_permitted_call_and_refuses_the_other_with_its_reason() {
    let folder = example::folder().unwrap();
    let said = example::serve(folder.path()).await.unwrap();
    assert_eq!(said.len(), 4, "{said:#?}");
    assert_eq!(said[0], "tools: count_words");
    assert!(
        said[1].contains("Succeeded: 3 notes/today.txt"),
        "{}",
        said[1]
    );
    assert!(said[2].contains("close is `notes-only`"), "{}", said[2]);
    assert_eq!(said[3], "journal: intact");
}
