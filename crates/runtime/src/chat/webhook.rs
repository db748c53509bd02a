//! Delivery by one HTTP request to an address that the platform gave: it is as secret as a key.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use inference::BaseUrl;
use model::Redacted;

use crate::chat::{Delivery, DeliveryError};

/// Posts every message to one address. No redirect is followed and no proxy is used.
pub struct Webhook {
    address: Redacted<Uri>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").finish_non_exhaustive()
    }
}

/// The address is none: `https://`, or plain `http://` of a loopback address. Never repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookError;

impl fmt::Display for WebhookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the webhook is no https address (http is for a loopback address), or has a query, a \
             fragment or credentials",
        )
    }
}

impl std::error::Error for WebhookError {}

impl Webhook {
    /// # Errors
    /// [`WebhookError`]
    pub fn new(address: &Redacted<String>) -> Result<Self, WebhookError> {
        let checked = BaseUrl::parse(address.expose()).map_err(|_| WebhookError)?;
        let uri: Uri = checked.join("").parse().map_err(|_| WebhookError)?;
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            address: Redacted::new(uri),
            client: Client::builder(TokioExecutor::new()).build(connector),
        })
    }
}

impl Delivery for Webhook {
    fn deliver(
        &self,
        message: Vec<u8>,
    ) -> Pin<Box<dyn Future<Output = Result<(), DeliveryError>> + Send + '_>> {
        Box::pin(async move {
            let request = Request::builder()
                .method(Method::POST)
                .uri(self.address.expose())
                .header(hyper::header::CONTENT_TYPE, "application/json")
                .body(Full::new(Bytes::from(message)))
                .map_err(|_| DeliveryError::Unreachable)?;
            let response = self.client.request(request).await;
            match response.map_err(|_| DeliveryError::Unreachable)?.status() {
                status if status.is_success() => Ok(()),
                status => Err(DeliveryError::Status(status.as_u16())),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_is_https_or_loopback_and_is_never_repeated() {
        let made = |text: &str| Webhook::new(&Redacted::new(text.to_owned()));
        assert!(made("https://hooks.example.com/services/T1/B1/hunter2").is_ok());
        assert!(made("http://127.0.0.1:9/x").is_ok());
        for bad in [
            "http://hooks.example.com/hunter2",
            "ftp://hunter2",
            "hunter2",
            "https://a:hunter2@h/x",
            "https://h/x?hunter2",
        ] {
            let error = made(bad).map(|it| format!("{it:?}")).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{bad}");
        }
        let shown = format!("{:?}", made("https://h/hunter2").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[tokio::test]
    async fn a_redirect_is_a_failure_and_is_not_followed() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let elsewhere = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/hush", listener.local_addr().unwrap());
        let webhook = Webhook::new(&Redacted::new(address)).unwrap();
        let place = elsewhere.local_addr().unwrap();
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut begun = [0; 16];
            stream.read_exact(&mut begun).await.unwrap();
            let answer = format!(
                "HTTP/1.1 307 T\r\nLocation: http://{place}/hush\r\nContent-Length: 0\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream
        });
        let delivered = webhook.deliver(b"{}".to_vec()).await;
        assert_eq!(delivered, Err(DeliveryError::Status(307)));
        drop(answering.await.unwrap());
        let followed = tokio::time::timeout(Duration::from_millis(200), elsewhere.accept());
        assert!(followed.await.is_err());
    }
}
