//! Signatures by OpenSSH itself, against ours.

#![expect(
    clippy::expect_used,
    reason = "tests fail where something is not as it must be"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use approval::{
    HeldId, NAMESPACE, Operators, OperatorsError, Review, ReviewParts, SignatureError, Tally, Votes,
};
use model::{Canonical, Digest};
use serde_json::json;
use ssh_key::private::Ed25519Keypair;
use ssh_key::public::{KeyData, SkEd25519};
use ssh_key::{HashAlg, PrivateKey, Signature, SigningKey, SshSig};

struct Keys {
    folder: tempfile::TempDir,
}

impl Keys {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { folder }
    }

    /// Makes a key pair, and gives its public line.
    fn make(&self, name: &str, kind: &[&str]) -> String {
        let path = self.path(name);
        let made = Command::new("ssh-keygen")
            .args(["-q", "-N", "", "-C", name, "-t"])
            .args(kind)
            .arg("-f")
            .arg(&path)
            .status()
            .expect("ssh-keygen is needed: package openssh-client");
        assert!(made.success());
        std::fs::read_to_string(path.with_extension("pub")).expect("a public key")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sign(&self, name: &str, namespace: &str, text: &str, options: &[&str]) -> String {
        sign(&self.path(name), namespace, text, options)
    }
}

fn sign(key: &Path, namespace: &str, text: &str, options: &[&str]) -> String {
    let mut signer = Command::new("ssh-keygen")
        .args(["-q", "-Y", "sign", "-n", namespace])
        .args(options)
        .arg("-f")
        .arg(key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("ssh-keygen");
    let mut stdin = signer.stdin.take().expect("stdin");
    stdin.write_all(text.as_bytes()).expect("the text is read");
    drop(stdin);
    let signed = signer.wait_with_output().expect("an end");
    assert!(signed.status.success());
    String::from_utf8(signed.stdout).expect("text")
}

/// A security key in software: what OpenSSH's `PROTOCOL.u2f` has one do.
struct SecurityKey {
    key: PrivateKey,
    public: KeyData,
    application: &'static str,
}

impl SecurityKey {
    fn ed25519(application: &'static str) -> Self {
        let pair = Ed25519Keypair::from_seed(&[7; 32]);
        let public = KeyData::SkEd25519(SkEd25519::new(pair.public, application));
        Self {
            key: PrivateKey::from(pair),
            public,
            application,
        }
    }

    fn ecdsa(application: &'static str) -> Self {
        let keys = Keys::new();
        keys.make("key", &["ecdsa", "-b", "256"]);
        let file = std::fs::read(keys.path("key")).expect("a private key");
        let key = PrivateKey::from_openssh(file).expect("a private key");
        let point = key.public_key().key_data().ecdsa().expect("of ECDSA");
        let parts = [
            b"sk-ecdsa-sha2-nistp256@openssh.com",
            &b"nistp256"[..],
            point.as_sec1_bytes(),
            application.as_bytes(),
        ];
        let strings = parts.map(|part| {
            let length = u32::try_from(part.len()).expect("short");
            [&length.to_be_bytes()[..], part].concat()
        });
        let public = ssh_key::PublicKey::from_bytes(&strings.concat()).expect("a public key");
        Self {
            public: public.key_data().clone(),
            key,
            application,
        }
    }

    /// One of each kind.
    fn both(application: &'static str) -> [Self; 2] {
        [Self::ed25519(application), Self::ecdsa(application)]
    }

    fn of_application(&self, application: &'static str) -> Self {
        match self.public {
            KeyData::SkEd25519(_) => Self::ed25519(application),
            _ => Self::ecdsa(application),
        }
    }

    fn public_line(&self) -> String {
        let key = ssh_key::PublicKey::new(self.public.clone(), "alice");
        key.to_openssh().expect("a line")
    }

    fn sign(&self, text: &str, flags: u8, counter: u32) -> String {
        let signed = SshSig::signed_data(NAMESPACE, HashAlg::Sha512, text.as_bytes());
        let touch = [&[flags], &counter.to_be_bytes()[..]].concat();
        let digest = |bytes: &[u8]| Digest::of(bytes).as_bytes().to_vec();
        let message = [
            digest(self.application.as_bytes()),
            touch.clone(),
            digest(&signed.expect("what is signed")),
        ]
        .concat();
        let raw = made_with(&self.key, &message);
        self.armored([raw.as_bytes(), &touch].concat())
    }

    fn armored(&self, signature: Vec<u8>) -> String {
        let raw = Signature::new(self.public.algorithm(), signature).expect("a signature");
        SshSig::new(self.public.clone(), NAMESPACE, HashAlg::Sha512, raw)
            .and_then(|it| it.to_pem(ssh_key::LineEnding::LF))
            .expect("an armored signature")
    }
}

fn made_with<K: SigningKey>(key: &K, message: &[u8]) -> Signature {
    key.try_sign(message).expect("a signature")
}

#[test]
fn a_security_key_counts_where_it_was_touched_and_its_counter_grows() {
    SecurityKey::both("ssh:")
        .iter()
        .for_each(counts_where_touched);
}

fn counts_where_touched(key: &SecurityKey) {
    let operators = operators(&[("alice", &[&key.public_line()])], 1).expect("operators");
    let text = review(1).text().to_owned();
    let mut votes = Votes::default();
    let mut add = |counter| {
        let armored = key.sign(&text, 1, counter);
        let signed = operators.verify(&review(1), &armored).expect("a signature");
        votes.add(&held_id("held-1"), signed, &operators)
    };
    for counter in [0, 0, 5, 5, 6] {
        assert!(matches!(add(counter), Ok(Tally::Enough(_))), "{counter}");
    }
    let (operator, last, found) = ("alice".to_owned(), 6, 5);
    let refused = Err(SignatureError::Counter {
        operator: operator.clone(),
        last,
        found,
    });
    assert_eq!(add(5), refused);
    assert_eq!(add(5), refused);
    let untouched = operators.verify(&review(1), &key.sign(&text, 4, 7));
    assert_eq!(untouched, Err(SignatureError::NotTouched { operator }));
}

#[test]
fn openssh_accepts_the_same_signature_of_a_security_key() {
    for key in SecurityKey::both("ssh:") {
        let keys = Keys::new();
        let allowed = keys.path("allowed");
        std::fs::write(&allowed, format!("alice {}", key.public_line())).expect("written");
        let signature = keys.path("signature");
        std::fs::write(&signature, key.sign(review(1).text(), 1, 9)).expect("written");
        for (value, good) in [(1, true), (2, false)] {
            assert_eq!(openssh_verifies(&allowed, &signature, &review(value)), good);
        }
    }
}

#[test]
fn a_security_key_of_another_application_or_changed_flags_does_not_count() {
    for key in SecurityKey::both("ssh:") {
        let operators = operators(&[("alice", &[&key.public_line()])], 1).expect("operators");
        let other = key.of_application("ssh:other").sign(review(1).text(), 1, 1);
        let refused = operators.verify(&review(1), &other);
        assert!(
            matches!(refused, Err(SignatureError::Unknown { .. })),
            "{refused:?}"
        );
        let untouched = SshSig::from_pem(key.sign(review(1).text(), 0, 1)).expect("a signature");
        let mut bytes = untouched.signature_bytes().to_vec();
        let flags = bytes.len() - 5;
        bytes[flags] = 1;
        let operator = "alice".to_owned();
        let refused = operators.verify(&review(1), &key.armored(bytes));
        assert_eq!(refused, Err(SignatureError::OtherText { operator }));
    }
}

fn openssh_verifies(allowed: &Path, signature: &Path, review: &Review) -> bool {
    let mut verifier = Command::new("ssh-keygen")
        .args(["-Y", "verify", "-I", "alice", "-n", NAMESPACE, "-f"])
        .arg(allowed)
        .arg("-s")
        .arg(signature)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("ssh-keygen");
    let mut stdin = verifier.stdin.take().expect("stdin");
    stdin.write_all(review.text().as_bytes()).expect("read");
    drop(stdin);
    verifier.wait().expect("an end").success()
}

fn review(value: i64) -> Review {
    let call = Canonical::of(&json!({ "value": value })).expect("canonical");
    Review::of(&ReviewParts {
        held_id: &held_id("held-1"),
        run: "0197f3a0-0000-7000-8000-000000000001"
            .parse()
            .expect("an id"),
        principal: "operator",
        tool: "echo",
        call_sha256: call.digest(),
        created_at: "2026-01-01T00:00:00Z",
        expires_at: "2026-01-01T00:05:00Z",
        call: &call,
    })
    .expect("a review")
}

fn held_id(text: &str) -> HeldId {
    HeldId::new(text).expect("an id")
}

fn operators(named: &[(&str, &[&str])], require: u64) -> Result<Operators, OperatorsError> {
    let keys: BTreeMap<String, Vec<String>> = named
        .iter()
        .map(|(name, keys)| {
            let keys = keys.iter().map(|key| (*key).trim_end().to_owned());
            ((*name).to_owned(), keys.collect())
        })
        .collect();
    Operators::new(&keys, require)
}

#[test]
fn a_signature_that_openssh_makes_over_the_shown_text_counts() {
    let keys = Keys::new();
    let kinds: [&[&str]; 2] = [&["ed25519"], &["ecdsa", "-b", "256"]];
    for (index, kind) in kinds.into_iter().enumerate() {
        let name = format!("key{index}");
        let public = keys.make(&name, kind);
        let operators = operators(&[("alice", &[&public])], 1).expect("operators");
        for hash in ["sha512", "sha256"] {
            let option = format!("hashalg={hash}");
            let armored = keys.sign(&name, NAMESPACE, review(1).text(), &["-O", &option]);
            let signed = operators.verify(&review(1), &armored).expect("a signature");
            assert_eq!(signed.operator(), "alice");
            assert!(signed.fingerprint().starts_with("SHA256:"));
            assert_eq!(signed.armored(), armored.trim_end());
        }
    }
}

#[test]
fn openssh_accepts_what_we_count_and_nothing_else() {
    let keys = Keys::new();
    let public = keys.make("alice", &["ed25519"]);
    let operators = operators(&[("alice", &[&public])], 1).expect("operators");
    let armored = keys.sign("alice", NAMESPACE, review(1).text(), &[]);
    let allowed = keys.path("allowed");
    let line = format!("alice namespaces=\"{NAMESPACE}\" {public}");
    std::fs::write(&allowed, line).expect("written");
    let signature = keys.path("signature");
    std::fs::write(&signature, &armored).expect("written");
    for (value, good) in [(1, true), (2, false)] {
        assert_eq!(openssh_verifies(&allowed, &signature, &review(value)), good);
        assert_eq!(operators.verify(&review(value), &armored).is_ok(), good);
    }
}

#[test]
fn another_key_text_or_namespace_does_not_count() {
    let keys = Keys::new();
    let alice = keys.make("alice", &["ed25519"]);
    keys.make("mallory", &["ed25519"]);
    let operators = operators(&[("alice", &[&alice])], 1).expect("operators");
    let verify = |armored: &str| operators.verify(&review(1), armored).map(drop);

    let by_mallory = keys.sign("mallory", NAMESPACE, review(1).text(), &[]);
    assert!(matches!(
        verify(&by_mallory),
        Err(SignatureError::Unknown { .. })
    ));
    let other = keys.sign("alice", NAMESPACE, review(2).text(), &[]);
    let operator = "alice".to_owned();
    assert_eq!(verify(&other), Err(SignatureError::OtherText { operator }));
    let file = keys.sign("alice", "file", review(1).text(), &[]);
    let found = "file".to_owned();
    assert_eq!(verify(&file), Err(SignatureError::Namespace { found }));
}

#[test]
fn what_is_no_signature_does_not_count() {
    let keys = Keys::new();
    let alice = keys.make("alice", &["ed25519"]);
    let operators = operators(&[("alice", &[&alice])], 1).expect("operators");
    let good = keys.sign("alice", NAMESPACE, review(1).text(), &[]);
    let lines: Vec<&str> = good.lines().collect();
    let cut = lines[..2].join("\n");
    for armored in ["", "approve", &cut, &good.replace("SSH SIGNATURE", "X")] {
        let refused = operators.verify(&review(1), armored);
        assert_eq!(refused, Err(SignatureError::Malformed), "{armored}");
    }
    let max = approval::limits::SIGNATURE_BYTES_MAX;
    let long = format!("{good}{}", "\n".repeat(max));
    assert_eq!(
        operators.verify(&review(1), &long),
        Err(SignatureError::TooLarge { max })
    );
    // Every single changed character is noticed.
    for at in lines[0].len() + 1..good.len() - lines[0].len() {
        let mut changed = good.clone().into_bytes();
        let Some(place) = changed
            .get_mut(at)
            .filter(|byte| byte.is_ascii_alphanumeric())
        else {
            continue;
        };
        *place = if *place == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("text");
        assert!(operators.verify(&review(1), &changed).is_err(), "{at}");
    }
}

#[test]
fn rsa_keys_and_certificates_are_refused() {
    let keys = Keys::new();
    let rsa = keys.make("rsa", &["rsa", "-b", "2048"]);
    assert!(matches!(
        operators(&[("alice", &[&rsa])], 1),
        Err(OperatorsError::Algorithm { .. })
    ));
    let alice = keys.make("alice", &["ed25519"]);
    keys.make("ca", &["ed25519"]);
    let certified = Command::new("ssh-keygen")
        .args(["-q", "-I", "alice", "-n", "alice", "-s"])
        .arg(keys.path("ca"))
        .arg(keys.path("alice.pub"))
        .status()
        .expect("ssh-keygen");
    assert!(certified.success());
    let certificate = std::fs::read_to_string(keys.path("alice-cert.pub")).expect("a certificate");
    assert!(operators(&[("alice", &[&certificate])], 1).is_err());
    let operators = operators(&[("alice", &[&alice])], 1).expect("operators");
    let by_rsa = keys.sign("rsa", NAMESPACE, review(1).text(), &[]);
    assert!(matches!(
        operators.verify(&review(1), &by_rsa),
        Err(SignatureError::Algorithm { .. })
    ));
}

#[test]
fn two_operators_must_sign_and_two_keys_of_one_are_one() {
    let keys = Keys::new();
    let laptop = keys.make("laptop", &["ed25519"]);
    let desk = keys.make("desk", &["ed25519"]);
    let bob = keys.make("bob", &["ed25519"]);
    let operators = operators(&[("alice", &[&laptop, &desk]), ("bob", &[&bob])], 2).expect("two");
    let signed = |name: &str| {
        let armored = keys.sign(name, NAMESPACE, review(1).text(), &[]);
        operators.verify(&review(1), &armored).expect("a signature")
    };
    let mut votes = Votes::default();
    let one = Tally::More {
        have: 1,
        require: 2,
    };
    assert_eq!(
        votes.add(&held_id("held-1"), signed("laptop"), &operators),
        Ok(one.clone())
    );
    assert_eq!(
        votes.add(&held_id("held-1"), signed("desk"), &operators),
        Ok(one.clone())
    );
    let Tally::Enough(all) = votes
        .add(&held_id("held-1"), signed("bob"), &operators)
        .expect("a vote")
    else {
        panic!("two operators have signed");
    };
    let names: Vec<&str> = all.iter().map(approval::Signed::operator).collect();
    assert_eq!(names, ["alice", "bob"]);
    // The next held call starts from nothing.
    assert_eq!(
        votes.add(&held_id("held-2"), signed("bob"), &operators),
        Ok(one.clone())
    );
}

#[test]
fn operators_that_cannot_be_meant_are_refused() {
    let keys = Keys::new();
    let alice = keys.make("alice", &["ed25519"]);
    let shared = operators(&[("alice", &[&alice]), ("bob", &[&alice])], 1);
    assert!(matches!(shared, Err(OperatorsError::Shared { .. })));
    for require in [0, 2] {
        let refused = operators(&[("alice", &[&alice])], require);
        assert!(matches!(refused, Err(OperatorsError::Require { .. })));
    }
    for text in [
        "",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "command=\"x\" ssh-ed25519 AAAA",
    ] {
        let refused = operators(&[("alice", &[text])], 1);
        assert!(
            matches!(refused, Err(OperatorsError::NotAKey { .. })),
            "{text}"
        );
    }
    assert!(matches!(
        operators(&[("alice", &[])], 1),
        Err(OperatorsError::Keys { count: 0, .. })
    ));
}
