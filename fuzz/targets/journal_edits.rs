//! A signed journal, changed in any way: it is never intact again. The input is a list of edits,
//! three bytes each: where (in 256ths of the file and bytes beyond), and what.
#![no_main]

use std::sync::OnceLock;

use journal::{
    Client, Custom, Journal, MemoryWriter, ProjectKey, PublicKey, RunEnded, RunStarted, Verdict,
    VerifyOptions, verify_run,
};
use libfuzzer_sys::fuzz_target;
use model::{Digest, RunId};

struct Written {
    bytes: Vec<u8>,
    key: PublicKey,
    run: RunId,
}

fn written() -> &'static Written {
    static WRITTEN: OnceLock<Written> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let key = ProjectKey::from_seed(&[7; 32]);
        let (writer, run) = (MemoryWriter::new(), RunId::new());
        let journal = Journal::new(
            Box::new(writer.clone()),
            Some(key.signer()),
            run,
            "fuzz".to_owned(),
        );
        let started = RunStarted {
            version: "0".to_owned(),
            project: String::new(),
            client: Client::Library,
            tools: Vec::new(),
            tool_set_sha256: Digest::of(b""),
            policy_sha256: Digest::of(b""),
            init_sha256: None,
            max_calls: 1,
            lifetime_ms: 1,
            tool_time_ms: 1,
        };
        let _ = journal.record(started).expect("recorded");
        for value in ["one", "two"] {
            let fact = Custom {
                custom_kind: "fuzz".to_owned(),
                digest: Digest::of(value.as_bytes()),
                value: value.to_owned(),
            };
            let _ = journal.record(fact).expect("recorded");
        }
        let ended = RunEnded {
            completed: true,
            cause: None,
            calls: 0,
        };
        let _ = journal.record(ended).expect("recorded");
        Written {
            bytes: writer.bytes(),
            key: key.public().clone(),
            run,
        }
    })
}

fn verdict(bytes: &[u8]) -> Verdict {
    let options = VerifyOptions {
        public_key: Some(written().key.clone()),
        run: Some(written().run),
        ..VerifyOptions::default()
    };
    verify_run(bytes, &options).expect("reading from memory").verdict
}

fuzz_target!(|edits: &[u8]| {
    let original = &written().bytes;
    assert_eq!(verdict(original), Verdict::Intact);
    let mut bytes = original.clone();
    for edit in edits.chunks_exact(3).take(32) {
        if bytes.is_empty() {
            break;
        }
        let place = usize::from(edit[0]) * bytes.len() / 256 + usize::from(edit[1] & 0x3f);
        let place = place.min(bytes.len() - 1);
        match edit[1] >> 6 {
            0 => bytes[place] = edit[2],
            1 => bytes.insert(place, edit[2]),
            2 => drop(bytes.remove(place)),
            _ => bytes.truncate(place),
        }
    }
    if bytes != *original {
        assert_ne!(verdict(&bytes), Verdict::Intact);
    }
});
