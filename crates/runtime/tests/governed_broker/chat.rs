//! Answers through a chat: the platform is a fixture, the session, its journal and the listener are
//! real.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use approval::chat::{Sender, Slack};
use governance::EndCause;
use model::{Digest, Redacted};
use serde_json::{Value, json};
use symbi_runtime::chat::{ChatListener, ChatSurface, Delivery, DeliveryError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::support::session::{Governed, Setup, succeeded};
use crate::support::{refused, until};

const SECRET: &[u8] = b"8f742231b10e8888abcd99yyyzzz85a5";

type Delivered<'a> = Pin<Box<dyn Future<Output = Result<(), DeliveryError>> + Send + 'a>>;

/// Keeps what is posted.
#[derive(Debug, Clone, Default)]
struct Channel(Arc<Mutex<Vec<Value>>>);

impl Delivery for Channel {
    fn deliver(&self, message: Vec<u8>) -> Delivered<'_> {
        let message = serde_json::from_slice(&message).unwrap();
        self.0.lock().unwrap().push(message);
        Box::pin(async { Ok(()) })
    }
}

/// Never returns, and tells when it is dropped.
#[derive(Debug, Clone, Default)]
struct Stuck {
    begun: Arc<AtomicBool>,
    dropped: Arc<AtomicBool>,
}

struct Tell(Arc<AtomicBool>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Delivery for Stuck {
    fn deliver(&self, _: Vec<u8>) -> Delivered<'_> {
        let tell = Tell(Arc::clone(&self.dropped));
        self.begun.store(true, Ordering::SeqCst);
        Box::pin(async move {
            let _tell = tell;
            pending().await
        })
    }
}

struct Refusing;

impl Delivery for Refusing {
    fn deliver(&self, _: Vec<u8>) -> Delivered<'_> {
        Box::pin(async { Err(DeliveryError::Status(404)) })
    }
}

fn hmac(text: &[u8]) -> Digest {
    let mut block = [0_u8; 64];
    block[..SECRET.len()].copy_from_slice(SECRET);
    let inner = [&block.map(|byte| byte ^ 0x36)[..], text].concat();
    let inner = Digest::of(&inner);
    Digest::of(&[&block.map(|byte| byte ^ 0x5c)[..], &inner.as_bytes()[..]].concat())
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// A platform's callback.
#[derive(Debug, Clone)]
struct Posted {
    time: u64,
    signature: String,
    body: String,
}

impl Posted {
    fn by(user: &str, text: &str) -> Self {
        Self::at(now(), user, text)
    }

    fn at(time: u64, user: &str, text: &str) -> Self {
        let text = text.replace(' ', "+");
        let body = format!("team_id=T1&channel_id=C1&user_id={user}&command=%2Fgate&text={text}");
        let signature = format!(
            "v0={}",
            hmac(format!("v0:{time}:{body}").as_bytes()).to_hex()
        );
        Self {
            time,
            signature,
            body,
        }
    }

    async fn to(&self, stream: impl AsyncRead + AsyncWrite) -> String {
        raw(stream, &self.request()).await
    }

    fn request(&self) -> String {
        format!(
            "POST /slack HTTP/1.1\r\nHost: relay\r\nX-Slack-Signature: {}\r\n\
             X-Slack-Request-Timestamp: {}\r\nContent-Length: {}\r\n\r\n{}",
            self.signature,
            self.time,
            self.body.len(),
            self.body
        )
    }
}

async fn raw(stream: impl AsyncRead + AsyncWrite, request: &str) -> String {
    let mut stream = std::pin::pin!(stream);
    // A request that is refused early is not read to its end.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

/// A session whose held calls are shown in a chat.
struct Asked {
    governed: Governed,
    address: SocketAddr,
    reports: Arc<Mutex<Vec<String>>>,
    serving: tokio::task::JoinHandle<()>,
}

fn surface(delivery: impl Delivery + 'static, listener: ChatListener) -> ChatSurface {
    let sender = Sender {
        workspace: "T1".to_owned(),
        channel: "C1".to_owned(),
        user: "U1".to_owned(),
    };
    let slack = Slack::new(Redacted::new(SECRET.to_vec()), BTreeSet::from([sender])).unwrap();
    ChatSurface {
        chat: Box::new(slack),
        delivery: Box::new(delivery),
        listener,
        report: Box::new(|_| ()),
    }
}

fn ask(setup: Setup, delivery: impl Delivery + 'static) -> Asked {
    let governed = setup.start_durable();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reports: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&reports);
    let surface = ChatSurface {
        report: Box::new(move |text| told.lock().unwrap().push(text.to_owned())),
        ..surface(delivery, ChatListener::Loopback(listener))
    };
    let serving = tokio::spawn(surface.serve(governed.session.held_calls()));
    Asked {
        governed,
        address,
        reports,
        serving,
    }
}

impl Asked {
    async fn post(&self, posted: &Posted) -> String {
        posted
            .to(TcpStream::connect(self.address).await.unwrap())
            .await
    }

    async fn close(self) {
        self.serving.abort();
        self.governed.close().await.unwrap();
        assert_eq!(self.governed.terminal()["completed"], true);
    }
}

#[tokio::test]
async fn the_whole_request_is_shown_and_an_allowed_members_signed_answer_counts() {
    let channel = Channel::default();
    let asked = ask(Setup::default(), channel.clone());
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 99}));
    let held = asked.governed.held().await;
    until("a message", || !channel.0.lock().unwrap().is_empty()).await;
    let message = channel.0.lock().unwrap()[0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = message.split("```\n").nth(1).unwrap();
    let shown = shown
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    assert_eq!(shown, held.review.text());
    let line = format!("approve {} {}", held.held_id, held.review_sha256);
    assert!(message.contains(&format!("/gate {line}")), "{message}");
    let answer = asked.post(&Posted::by("U1", &line)).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("approved held-"),
        "{answer}"
    );
    succeeded(waiting.await.unwrap());
    let approval = &asked.governed.of_kind("CallDispatching")[0]["approval"];
    assert_eq!(approval["surface"], "chat");
    assert_eq!(approval["approver"], "slack/T1/C1/U1");
    assert_eq!(approval["review_sha256"], held.review_sha256.to_hex());
    assert_eq!(channel.0.lock().unwrap().len(), 1);
    asked.close().await;
}

#[tokio::test]
async fn a_denial_in_the_chat_ends_the_call_alone() {
    let asked = ask(Setup::default(), Channel::default());
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    let held = asked.governed.held().await;
    let line = format!("deny {} {}", held.held_id, held.review_sha256);
    asked.post(&Posted::by("U1", &line)).await;
    let refusal = refused(waiting.await.unwrap());
    assert!(
        refusal.reason.contains("slack/T1/C1/U1 (chat)"),
        "{refusal}"
    );
    let late = asked.post(&Posted::at(now() + 1, "U1", &line)).await;
    assert!(late.contains("no call is held"), "{late}");
    assert_eq!(asked.governed.tier.started(), 0);
    asked.close().await;
}

#[tokio::test]
async fn forged_old_repeated_foreign_and_inexact_callbacks_do_not_count_and_are_recorded() {
    let asked = ask(Setup::default(), Channel::default());
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    let held = asked.governed.held().await;
    let (id, digest) = (held.held_id.as_str(), held.review_sha256);
    let yes = format!("approve {id} {digest}");
    let other = Digest::of(b"another text");
    let inexact = Posted::by("U1", &format!("approve {id}"));
    let mut forged = Posted::by("U1", &format!("deny {id} {digest}"));
    forged.body = forged.body.replace("deny", "approve");
    for (posted, status, why) in [
        (forged, 401, "signature is not the platform's"),
        (Posted::at(now() - 400, "U1", &yes), 401, "s from ours"),
        (Posted::by("U2", &yes), 200, "may not answer"),
        (inexact.clone(), 200, "not `approve"),
        (inexact, 401, "used before"),
        (
            Posted::by("U1", &format!("approve {id} {other}")),
            200,
            "review digest",
        ),
        (
            Posted::by("U1", &format!("approve held-0 {digest}")),
            200,
            "no call is held",
        ),
    ] {
        let answer = asked.post(&posted).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{why}: {answer}"
        );
        assert!(answer.contains(why), "{why}: {answer}");
        assert_eq!(asked.governed.session.pending().len(), 1, "{why}");
    }
    until("the records", || {
        asked.governed.of_kind("AnswerRefused").len() == 7
    })
    .await;
    let records = asked.governed.of_kind("AnswerRefused");
    assert_eq!(records[2]["from"], "slack/T1/C1/U2");
    assert_eq!(records[5]["from"], "slack/T1/C1/U1");
    assert!(records.iter().all(|it| it["surface"] == "chat"));
    let answer = asked.post(&Posted::by("U1", &yes)).await;
    assert!(answer.contains("approved"), "{answer}");
    succeeded(waiting.await.unwrap());
    asked.close().await;
}

#[tokio::test]
async fn what_is_no_callback_is_refused_and_the_next_one_counts() {
    let asked = ask(Setup::default(), Channel::default());
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    let held = asked.governed.held().await;
    let large = approval::limits::CALLBACK_BYTES_MAX + 1;
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "405"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "401",
        ),
        (
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {large}\r\n\r\n{}",
                "a".repeat(large)
            ),
            "401",
        ),
        ("\u{1b}[2J\r\n\r\n".to_owned(), "400"),
    ] {
        let stream = TcpStream::connect(asked.address).await.unwrap();
        let answer = raw(stream, &request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{status}: {answer}"
        );
    }
    // Half a request holds nobody up.
    let mut half = TcpStream::connect(asked.address).await.unwrap();
    half.write_all(b"POST / HT").await.unwrap();
    let line = format!("deny {} {}", held.held_id, held.review_sha256);
    asked.post(&Posted::by("U1", &line)).await;
    refused(waiting.await.unwrap());
    asked.close().await;
}

#[tokio::test]
async fn of_many_answers_at_once_one_counts_and_the_others_are_told_so() {
    let asked = ask(Setup::default(), Channel::default());
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    let held = asked.governed.held().await;
    let answers = (0..32).map(|number| {
        let word = ["approve", "deny"][number % 2];
        let line = format!("{word} {} {}", held.held_id, held.review_sha256);
        let posted = Posted::at(now() - number as u64, "U1", &line);
        let address = asked.address;
        tokio::spawn(async move { posted.to(TcpStream::connect(address).await.unwrap()).await })
    });
    let answers: Vec<_> = answers.collect();
    let mut counted = Vec::new();
    for answer in answers {
        let answer = answer.await.unwrap();
        match answer.contains("does not count") {
            true => assert!(answer.contains("any more"), "{answer}"),
            false => counted.push(answer.contains("approved held-")),
        }
    }
    assert_eq!(counted.len(), 1);
    match counted[0] {
        true => drop(succeeded(waiting.await.unwrap())),
        false => drop(refused(waiting.await.unwrap())),
    }
    assert_eq!(asked.governed.tier.started(), usize::from(counted[0]));
    asked.close().await;
}

#[tokio::test]
async fn an_answer_to_an_expired_or_withdrawn_call_does_not_count_for_the_next() {
    let setup = Setup::default().approval_time(Duration::from_millis(1500));
    let asked = ask(setup, Channel::default());
    let expired = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    let first = asked.governed.held().await;
    refused(expired.await.unwrap());
    let withdrawn = asked.governed.spawn("2", "guarded", json!({"count": 1}));
    let second = asked.governed.held().await;
    withdrawn.abort();
    until("the withdrawal", || {
        asked.governed.of_kind("CallWithdrawn").len() == 1
    })
    .await;
    let waiting = asked.governed.spawn("3", "guarded", json!({"count": 1}));
    let third = asked.governed.held().await;
    for (id, digest, why) in [
        (&first.held_id, first.review_sha256, "any more"),
        (&second.held_id, second.review_sha256, "any more"),
        (&first.held_id, third.review_sha256, "any more"),
        (&third.held_id, second.review_sha256, "review digest"),
    ] {
        let line = format!("approve {id} {digest}");
        let answer = asked.post(&Posted::by("U1", &line)).await;
        assert!(answer.contains(why), "{answer}");
    }
    assert_eq!(asked.governed.tier.started(), 0);
    asked.governed.approve(&third);
    succeeded(waiting.await.unwrap());
    asked.close().await;
}

#[tokio::test]
async fn silent_connections_take_no_place_from_a_callback() {
    let asked = ask(Setup::default(), Channel::default());
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    let held = asked.governed.held().await;
    let mut silent = Vec::new();
    for number in 0..48 {
        let mut stream = TcpStream::connect(asked.address).await.unwrap();
        let begun = &b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"[..number % 42];
        stream.write_all(begun).await.unwrap();
        silent.push(stream);
    }
    let since = Instant::now();
    let line = format!("deny {} {}", held.held_id, held.review_sha256);
    let answer = asked.post(&Posted::by("U1", &line)).await;
    assert!(answer.contains("denied held-"), "{answer}");
    assert!(
        since.elapsed() < Duration::from_secs(3),
        "{:?}",
        since.elapsed()
    );
    refused(waiting.await.unwrap());
    asked.close().await;
}

#[tokio::test]
async fn a_second_callback_behind_the_first_is_not_read() {
    let asked = ask(Setup::default(), Channel::default());
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    let held = asked.governed.held().await;
    let line = format!("approve {} {}", held.held_id, held.review_sha256);
    let behind = Posted::by("U1", &line).request();
    let first = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let both = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n\
                0\r\n\r\n";
    for first in [first, both] {
        let stream = TcpStream::connect(asked.address).await.unwrap();
        let answer = raw(stream, &format!("{first}{behind}")).await;
        assert!(!answer.contains("approved"), "{answer}");
        assert_eq!(asked.governed.session.pending().len(), 1);
    }
    asked.governed.approve(&held);
    succeeded(waiting.await.unwrap());
    asked.close().await;
}

#[tokio::test]
async fn a_listener_that_ends_within_a_callback_leaves_the_call_held_for_the_others() {
    let asked = ask(Setup::default(), Channel::default());
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    let held = asked.governed.held().await;
    let line = format!("approve {} {}", held.held_id, held.review_sha256);
    let request = Posted::by("U1", &line).request();
    let mut stream = TcpStream::connect(asked.address).await.unwrap();
    let most = request.len() - 1;
    stream.write_all(&request.as_bytes()[..most]).await.unwrap();
    asked.serving.abort();
    until("the listener's end", || asked.serving.is_finished()).await;
    let _ = stream.write_all(&request.as_bytes()[most..]).await;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert_eq!(answer, "");
    assert_eq!(asked.governed.session.pending().len(), 1);
    asked.governed.approve(&held);
    succeeded(waiting.await.unwrap());
    asked.close().await;
}

/// A held call whose notification hangs.
async fn stuck(setup: Setup) -> (Asked, Stuck, Waiting) {
    let stuck = Stuck::default();
    let asked = ask(setup, stuck.clone());
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    until("the notification", || stuck.begun.load(Ordering::SeqCst)).await;
    (asked, stuck, waiting)
}

type Waiting =
    tokio::task::JoinHandle<Result<symbi_runtime::reasoning::governed_session::Answer, EndCause>>;

async fn dropped(stuck: &Stuck, since: Instant) {
    until("the stuck notification is dropped", || {
        stuck.dropped.load(Ordering::SeqCst)
    })
    .await;
    assert!(since.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_notification_that_hangs_holds_up_neither_an_approval_nor_a_denial() {
    for word in ["approve", "deny"] {
        let (asked, stuck, waiting) = stuck(Setup::default()).await;
        let (since, held) = (Instant::now(), asked.governed.held().await);
        let line = format!("{word} {} {}", held.held_id, held.review_sha256);
        asked.post(&Posted::by("U1", &line)).await;
        match word {
            "approve" => drop(succeeded(waiting.await.unwrap())),
            _ => drop(refused(waiting.await.unwrap())),
        }
        dropped(&stuck, since).await;
        asked.close().await;
    }
}

#[tokio::test]
async fn a_notification_that_hangs_holds_up_no_expiry() {
    let setup = Setup::default().approval_time(Duration::from_millis(300));
    let (since, (asked, stuck, waiting)) = (Instant::now(), stuck(setup).await);
    let refusal = refused(waiting.await.unwrap());
    assert!(refusal.reason.contains("timeout of 0.3 s"), "{refusal}");
    dropped(&stuck, since).await;
    asked.close().await;
}

#[tokio::test]
async fn a_notification_that_hangs_holds_up_no_cancellation() {
    let (asked, stuck, waiting) = stuck(Setup::default()).await;
    let since = Instant::now();
    asked.governed.session.cancel();
    assert_eq!(waiting.await.unwrap().unwrap_err(), EndCause::Cancelled);
    dropped(&stuck, since).await;
    assert!(asked.governed.close().await.is_err());
    assert!(asked.governed.session.pending().is_empty());
    assert_eq!(asked.governed.terminal()["completed"], false);
}

#[tokio::test]
async fn a_message_that_cannot_be_delivered_is_reported_and_the_call_waits_on() {
    let asked = ask(Setup::default(), Refusing);
    let waiting = asked.governed.spawn("1", "guarded", json!({"count": 1}));
    let held = asked.governed.held().await;
    until("a report", || !asked.reports.lock().unwrap().is_empty()).await;
    let report = asked.reports.lock().unwrap()[0].clone();
    assert!(
        report.contains(&held.held_id) && report.contains("status 404"),
        "{report}"
    );
    asked.governed.approve(&held);
    succeeded(waiting.await.unwrap());
    asked.close().await;
}

#[tokio::test]
async fn callbacks_come_in_through_a_socket_too() {
    let governed = Setup::default().start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.chat");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let surface = surface(Channel::default(), ChatListener::Socket(listener));
    let serving = tokio::spawn(surface.serve(governed.session.held_calls()));
    let waiting = governed.spawn("1", "guarded", json!({"count": 1}));
    let held = governed.held().await;
    let line = format!("approve {} {}", held.held_id, held.review_sha256);
    let stream = UnixStream::connect(&path).await.unwrap();
    let answer = Posted::by("U1", &line).to(stream).await;
    assert!(answer.contains("approved"), "{answer}");
    succeeded(waiting.await.unwrap());
    serving.abort();
    governed.close().await.unwrap();
}
