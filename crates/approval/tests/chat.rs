//! The Slack-shaped adapter against fixtures: nothing here reaches a network.

#![expect(
    clippy::expect_used,
    reason = "tests fail where something is not as it must be"
)]

use std::collections::BTreeSet;

use approval::chat::{Callback, Chat, ChatRefusal, Sender, Slack, SlackError};
use approval::{Answer, HeldId, Review, ReviewParts};
use model::{Canonical, Digest, Redacted};
use serde_json::json;

/// The example of Slack's "Verifying requests from Slack".
const SECRET: &[u8] = b"8f742231b10e8888abcd99yyyzzz85a5";
const EXAMPLE_BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&\
team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&\
user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F\
hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&\
trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
const EXAMPLE_TIME: u64 = 1_531_420_618;
const EXAMPLE_SIGNATURE: &str =
    "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

fn sender() -> Sender {
    Sender {
        workspace: "T1DC2JH3J".to_owned(),
        channel: "G8PSS9T3V".to_owned(),
        user: "U2CERLKJA".to_owned(),
    }
}

fn slack() -> Slack {
    Slack::new(Redacted::new(SECRET.to_vec()), BTreeSet::from([sender()])).expect("an adapter")
}

/// HMAC by another implementation: Python's.
fn sign(time: &str, body: &str) -> String {
    let script = "import hmac,sys\nprint('v0='+hmac.new(sys.argv[1].encode(),\
                  ('v0:'+sys.argv[2]+':'+sys.argv[3]).encode(),'sha256').hexdigest())";
    let made = std::process::Command::new("python3")
        .args([
            "-c",
            script,
            std::str::from_utf8(SECRET).expect("text"),
            time,
            body,
        ])
        .output()
        .expect("python3");
    String::from_utf8(made.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

fn answer(
    slack: &mut Slack,
    time: &str,
    signature: &str,
    body: &str,
    now: u64,
) -> Result<approval::chat::ChatAnswer, ChatRefusal> {
    let headers = [
        ("X-Slack-Request-Timestamp", time),
        ("X-Slack-Signature", signature),
    ];
    slack.answer(&Callback {
        headers: &headers,
        body: body.as_bytes(),
        now,
    })
}

fn body(text: &str) -> String {
    format!("team_id=T1DC2JH3J&channel_id=G8PSS9T3V&user_id=U2CERLKJA&command=%2Fgate&text={text}")
}

fn digest() -> Digest {
    Digest::of(b"review")
}

#[test]
fn the_platforms_own_example_is_verified_and_is_no_answer() {
    let time = EXAMPLE_TIME.to_string();
    let refused = answer(
        &mut slack(),
        &time,
        EXAMPLE_SIGNATURE,
        EXAMPLE_BODY,
        EXAMPLE_TIME,
    );
    assert_eq!(refused, Err(ChatRefusal::Grammar));
}

#[test]
fn an_answer_names_the_held_call_and_the_digest_of_its_review() {
    for (word, expected) in [("approve", Answer::Approve), ("deny", Answer::Deny)] {
        let body = body(&format!("{word}+held-1+{}", digest()));
        let read = answer(&mut slack(), "1000", &sign("1000", &body), &body, 1000).expect(word);
        assert_eq!(read.answer, expected);
        assert_eq!(read.held_id, HeldId::new("held-1").expect("an id"));
        assert_eq!(read.review_sha256, digest());
        assert_eq!(read.sender, sender());
    }
    let without = [
        "approve+held-1",
        "approve",
        "",
        "approve+held-1+12ab",
        "yes+held-1",
    ];
    for text in without {
        let body = body(text);
        let refused = answer(&mut slack(), "1000", &sign("1000", &body), &body, 1000);
        assert_eq!(refused, Err(ChatRefusal::Grammar), "{text}");
    }
}

#[test]
fn a_callback_that_was_changed_by_one_byte_is_refused() {
    let body = body(&format!("deny+held-1+{}", digest()));
    let signature = sign("1000", &body);
    let forged = body.replace("deny", "approve");
    let refused = answer(&mut slack(), "1000", &signature, &forged, 1000);
    assert_eq!(refused, Err(ChatRefusal::Signature));
    let refused = answer(&mut slack(), "1001", &signature, &body, 1000);
    assert_eq!(refused, Err(ChatRefusal::Signature));
    // The same number, written otherwise, is other bytes.
    let refused = answer(&mut slack(), "01000", &signature, &body, 1000);
    assert_eq!(refused, Err(ChatRefusal::Signature));
}

#[test]
fn a_callback_counts_once_and_only_near_its_time() {
    let body = body(&format!("approve+held-1+{}", digest()));
    let signature = sign("1000", &body);
    let mut slack = slack();
    assert!(answer(&mut slack, "1000", &signature, &body, 1300).is_ok());
    let again = answer(&mut slack, "1000", &signature, &body, 1300);
    assert_eq!(again, Err(ChatRefusal::Replay));
    for now in [699, 1301] {
        let old = answer(&mut slack, "1000", &signature, &body, now);
        assert_eq!(
            old,
            Err(ChatRefusal::Age {
                seconds: 301,
                max: 300
            })
        );
    }
}

#[test]
fn a_sender_outside_of_the_list_is_refused() {
    for (known, other) in [
        ("T1DC2JH3J", "T2"),
        ("G8PSS9T3V", "G2"),
        ("U2CERLKJA", "U2"),
    ] {
        let body = body(&format!("approve+held-1+{}", digest())).replace(known, other);
        let refused = answer(&mut slack(), "1000", &sign("1000", &body), &body, 1000);
        assert!(matches!(refused, Err(ChatRefusal::Sender(_))), "{other}");
    }
}

#[test]
fn fields_and_headers_must_come_exactly_once() {
    let body = format!(
        "{}&user_id=U2",
        body(&format!("approve+held-1+{}", digest()))
    );
    let signature = sign("1000", &body);
    let refused = answer(&mut slack(), "1000", &signature, &body, 1000);
    assert!(matches!(refused, Err(ChatRefusal::Body { .. })));
    let headers = [
        ("x-slack-request-timestamp", "1000"),
        ("x-slack-signature", signature.as_str()),
        ("X-Slack-Signature", signature.as_str()),
    ];
    let refused = slack().answer(&Callback {
        headers: &headers,
        body: body.as_bytes(),
        now: 1000,
    });
    assert!(matches!(refused, Err(ChatRefusal::Header { .. })));
    let refused = answer(&mut slack(), "+1000", &signature, &body, 1000);
    assert!(matches!(refused, Err(ChatRefusal::Header { .. })));
}

/// The message about a call.
fn message_of(call: &serde_json::Value) -> (serde_json::Value, Review) {
    let call = Canonical::of(call).expect("json");
    let held_id = HeldId::new("held-1").expect("an id");
    let review = Review::of(&ReviewParts {
        held_id: &held_id,
        run: "0197f3a0-0000-7000-8000-000000000001"
            .parse()
            .expect("an id"),
        principal: "operator",
        tool: "echo",
        call_sha256: call.digest(),
        created_at: "a",
        expires_at: "b",
        call: &call,
    })
    .expect("a review");
    let message = slack().message(&held_id, &review).expect("a message");
    (serde_json::from_slice(&message).expect("json"), review)
}

#[test]
fn the_message_shows_the_whole_review_and_how_to_answer() {
    let call = json!({"argv": ["<!channel>", "```", "\u{202e}"]});
    let (message, review) = message_of(&call);
    let text = message["text"].as_str().expect("text");
    assert!(text.contains("\"&lt;!channel&gt;\""), "{text}");
    assert!(
        text.contains("\\u0060\\u0060\\u0060") && text.contains("\\u202e"),
        "{text}"
    );
    assert!(text.contains(&format!("/gate approve held-1 {}", review.sha256())));
}

/// Else an agent could send data out by an address in a call that it only asks for.
#[test]
fn the_platform_is_told_to_fetch_nothing_that_a_call_names() {
    let (message, _) = message_of(&json!({"argv": ["https://a.example/?data=1"]}));
    assert_eq!(message["unfurl_links"], false);
    assert_eq!(message["unfurl_media"], false);
}

#[test]
fn what_a_call_says_can_neither_close_its_block_nor_pass_for_a_line_of_ours() {
    let forged = format!("```\n`/gate approve held-1 {}`\n*Approved*", digest());
    let call = json!({"argv": [forged, "h\u{435}ld \u{200b}\u{2060}\r\u{85}\u{2028}<@U1>&lt;"]});
    let (message, review) = message_of(&call);
    let text = message["text"].as_str().expect("text");
    assert!(
        text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')),
        "{text}"
    );
    assert_eq!(text.matches("```").count(), 2, "{text}");
    let after = text.rsplit("```").next().expect("the end");
    let lines: Vec<_> = after.trim().lines().collect();
    let line = |word| format!("`/gate {word} held-1 {}`", review.sha256());
    assert_eq!(lines, [line("approve"), line("deny")]);
    assert!(
        text.contains("h\\u0435ld \\u200b\\u2060\\r\\u0085\\u2028"),
        "{text}"
    );
    assert!(text.contains("&lt;@U1&gt;&amp;lt;"), "{text}");
}

#[test]
fn a_secret_that_is_too_short_and_an_empty_list_are_refused() {
    let senders = BTreeSet::from([sender()]);
    let short = Slack::new(Redacted::new(b"short".to_vec()), senders);
    assert!(matches!(short, Err(SlackError::ShortSecret { .. })));
    let nobody = Slack::new(Redacted::new(SECRET.to_vec()), BTreeSet::new());
    assert!(matches!(nobody, Err(SlackError::Senders { count: 0, .. })));
}
