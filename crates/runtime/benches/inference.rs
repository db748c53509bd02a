//! What the inference channel adds to a request: the same small answer asked for over it and
//! straight from the provider, one after the other in one loop. Its two records are synced.
//!
//! `cargo bench -p symbi-runtime --bench inference [-- COUNT]`

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unused_imports,
    reason = "a bench prints its figures, and takes the helpers of tests"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use testkit::provider::{ScriptedProvider, Turn};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use support::PATIENCE;
use support::provider::{Protected, ask, ask_stream, serve, terms};
use support::session::Setup;

type Sender = SendRequest<Full<Bytes>>;

async fn client(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Sender {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    sender
}

/// How long the first byte of the body took, and the whole answer.
async fn time(sender: &mut Sender, body: &str) -> (Duration, Duration) {
    let request = Request::builder()
        .method("POST")
        .uri("/v1/messages")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap();
    sender.ready().await.unwrap();
    let began = Instant::now();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    let first = body.frame().await.unwrap().unwrap();
    let at_first = began.elapsed();
    drop(first);
    while body.frame().await.is_some() {}
    (at_first, began.elapsed())
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

async fn compare(what: &str, durable: bool, body: String, count: usize) {
    let provider = ScriptedProvider::interactive(|_, _| Turn::text("hi")).unwrap();
    let (url, address) = (provider.url(), provider.address());
    let governed = match durable {
        true => Setup::default().start_durable(),
        false => Setup::default().start(),
    };
    let broker = serve(&governed, &url, terms(), PATIENCE);
    let socket = broker.channel().join("inference.sock");
    let mut proxied = client(UnixStream::connect(socket).await.unwrap()).await;
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut direct = client(stream).await;
    let mut times: [Vec<Duration>; 4] = Default::default();
    for _ in 0..count {
        let (first, whole) = time(&mut direct, &body).await;
        times[0].push(first);
        times[1].push(whole);
        let (first, whole) = time(&mut proxied, &body).await;
        times[2].push(first);
        times[3].push(whole);
    }
    let [direct_first, direct_whole, first, whole] = &mut times;
    let minimum = |times: &[Duration]| times[0].as_secs_f64() * 1000.0;
    let (df, dw, pf, pw) = (
        median(direct_first),
        median(direct_whole),
        median(first),
        median(whole),
    );
    println!(
        "{what}: first byte {pf:.2} against {df:.2} ms (+{:.2}), whole {pw:.2} against {dw:.2} ms \
         (+{:.2}); minimum +{:.2} and +{:.2}",
        pf - df,
        pw - dw,
        minimum(first) - minimum(direct_first),
        minimum(whole) - minimum(direct_whole),
    );
    broker.close().await.unwrap();
}

fn main() {
    let words = std::env::args().skip(1);
    let count = words
        .filter_map(|word| word.parse().ok())
        .next()
        .unwrap_or(300);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for (what, durable) in [
            ("journal in memory", false),
            ("journal on disk, synced", true),
        ] {
            let name = format!("{what}, message");
            compare(&name, durable, ask(5).to_string(), count).await;
            let name = format!("{what}, stream");
            compare(&name, durable, ask_stream().to_string(), count).await;
        }
    });
}
