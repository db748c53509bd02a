//! Ids that do work once, and what an operator can do for a run that died while it published.

#[expect(dead_code, reason = "the desk of all command line tests")]
#[path = "commands/desk.rs"]
#[cfg(test)]
mod desk;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
    use std::path::PathBuf;

    use journal::{
        CallDispatching, CandidateIdentity, Client, FileIdentity, FilePublicationPrepared,
        ProjectKey, RunFiles, RunStarted, journal_path,
    };
    use model::{CallId, Canonical, Digest, PublicationId, RelativePath, RunId, ToolName};
    use serde_json::Value;

    use crate::desk::{Desk, Ended};

    const CONTENT: &[u8] = b"published late\n";

    /// A project with a run that died between its intent and its rename.
    struct Scene {
        desk: Desk,
        run: RunId,
        publication: PublicationId,
        /// Held by a live owner until it is dropped.
        owner: Option<RunFiles>,
    }

    impl Scene {
        fn new() -> Self {
            let desk = Desk::empty();
            desk.symbi(&["init", "project"]).expect(0);
            let (run, publication) = (RunId::new(), PublicationId::new());
            let mut scene = Self {
                desk,
                run,
                publication,
                owner: None,
            };
            scene.owner = Some(scene.intend());
            scene
        }

        fn state(&self) -> PathBuf {
            self.desk.project().join(".symbiont")
        }

        fn target(&self) -> PathBuf {
            self.desk.project().join("out/late.txt")
        }

        fn candidate(&self) -> PathBuf {
            let folder = self.desk.project().join("out/.symbi-candidates");
            folder.join(format!("{}.{}", self.run, self.publication))
        }

        fn key(&self) -> ProjectKey {
            // The project's key is made at its first use.
            self.desk
                .symbi(&["--project", "project", "audit", "key"])
                .expect(0);
            let id = fs::read_to_string(self.state().join("id")).unwrap();
            let name = format!("state/symbi/keys/{}.ed25519", id.trim());
            ProjectKey::load(&self.desk.path(&name)).unwrap()
        }

        /// What a runtime does up to the rename.
        fn intend(&self) -> RunFiles {
            let mut files =
                RunFiles::create(&self.state(), self.run, "operator", &self.key()).unwrap();
            let journal = files.journal().clone();
            let _ = journal.record(started()).unwrap();
            files.started().unwrap();
            let descriptor = Canonical::of(&self.run.to_string()).unwrap();
            let call_sha256 = descriptor.digest();
            let mut call = journal.lend(call_sha256).unwrap();
            let dispatching = CallDispatching {
                call_id: CallId::new("call").unwrap(),
                tool: ToolName::new("copy_csv").unwrap(),
                call_sha256,
                descriptor,
                policies: Vec::new(),
                approval: None,
            };
            let _ = journal.record(dispatching).unwrap();
            let _ = call.publication_prepared(self.intent(call_sha256)).unwrap();
            files
        }

        fn intent(&self, call_sha256: Digest) -> FilePublicationPrepared {
            let folder = self.candidate().parent().unwrap().to_owned();
            fs::DirBuilder::new().mode(0o700).create(folder).unwrap();
            fs::write(self.candidate(), CONTENT).unwrap();
            let candidate = fs::metadata(self.candidate()).unwrap();
            let parent = fs::metadata(self.desk.project().join("out")).unwrap();
            FilePublicationPrepared {
                publication_id: self.publication,
                call_sha256,
                path: RelativePath::new("out/late.txt").unwrap(),
                parent_path: "./out".to_owned(),
                parent: FileIdentity {
                    device: parent.dev().to_string(),
                    inode: parent.ino().to_string(),
                },
                candidate: CandidateIdentity {
                    name: format!("{}.{}", self.run, self.publication),
                    device: candidate.dev().to_string(),
                    inode: candidate.ino().to_string(),
                },
                target_name: "late.txt".to_owned(),
                bytes: CONTENT.len() as u64,
                sha256: Digest::of(CONTENT),
            }
        }

        fn invocation(&self, command: &str, more: &[&str]) -> Ended {
            let run = self.run.to_string();
            let mut words = vec!["--project", "project", "--json", "invocation", command];
            words.extend(["--id", &run]);
            words.extend(more);
            self.desk.symbi(&words)
        }

        fn file_inspect(&self) -> Ended {
            let publication = self.publication.to_string();
            self.invocation("file-inspect", &["--publication", &publication])
        }

        fn file_recover(&self, reviewed: &str) -> Ended {
            let publication = self.publication.to_string();
            let words = ["--publication", &publication, "--snapshot-hash", reviewed];
            self.invocation("file-recover", &words)
        }
    }

    fn started() -> RunStarted {
        RunStarted {
            version: "0".to_owned(),
            project: "p".to_owned(),
            client: Client::Operator,
            tools: Vec::new(),
            tool_set_sha256: Digest::of(b""),
            policy_sha256: Digest::of(b""),
            init_sha256: None,
            max_calls: 1,
            lifetime_ms: 1000,
            tool_time_ms: 1000,
        }
    }

    fn json(ended: &Ended) -> Value {
        serde_json::from_str(&ended.stdout).unwrap()
    }

    #[test]
    fn a_live_run_is_refused_until_its_owner_is_gone() {
        let mut scene = Scene::new();
        let seen = scene.invocation("inspect", &[]).expect(3);
        assert_eq!(json(&seen)["state"], "live");
        scene.file_inspect().expect(3).says("still owned");
        scene
            .file_recover(&"0".repeat(64))
            .expect(3)
            .says("still owned");
        scene
            .invocation("resolve", &["--rationale", "x"])
            .expect(3)
            .says("still owned");
        drop(scene.owner.take());
        scene.invocation("inspect", &[]).expect(5);
        assert!(!scene.target().exists());
    }

    #[test]
    fn a_dead_runs_publication_is_finished_by_the_commands_that_are_told() {
        let mut scene = Scene::new();
        drop(scene.owner.take());
        let journal = fs::read(journal_path(&scene.state(), scene.run)).unwrap();
        let seen = json(&scene.invocation("inspect", &[]).expect(5));
        assert_eq!(seen["state"], "needs_recovery");
        assert_eq!(seen["publications"][0]["state"], "open");

        let found = json(&scene.file_inspect().expect(5));
        assert_eq!(found["state"], "ready_to_publish");
        let reviewed = found["snapshot_hash"].as_str().unwrap();
        assert!(found["next"].as_str().unwrap().ends_with(reviewed));
        scene
            .file_recover(&"0".repeat(64))
            .expect(3)
            .says("changed since the review");
        let first = scene.file_recover(reviewed).expect(0);
        assert_eq!(fs::read(scene.target()).unwrap(), CONTENT);
        assert!(!scene.candidate().exists());
        let again = scene.file_recover(reviewed).expect(0);
        assert_eq!(first.stdout, again.stdout);
        assert_eq!(json(&scene.file_inspect().expect(0))["state"], "published");

        assert_eq!(
            json(&scene.invocation("inspect", &[]).expect(5))["state"],
            "recovered"
        );
        let evidence = scene.desk.path("evidence");
        fs::write(&evidence, "seen").unwrap();
        let words = [
            "--rationale",
            "the file is right",
            "--evidence",
            evidence.to_str().unwrap(),
        ];
        let resolved = json(&scene.invocation("resolve", &words).expect(0));
        assert_eq!(
            resolved["resolution"]["evidence"]["sha256"],
            Digest::of(b"seen").to_hex()
        );
        assert_eq!(
            json(&scene.invocation("inspect", &[]).expect(0))["state"],
            "resolved"
        );
        scene.file_recover(reviewed).expect(3).says("resolved");
        let now = fs::read(journal_path(&scene.state(), scene.run)).unwrap();
        assert_eq!(now, journal);
    }

    #[test]
    fn a_resolved_invocation_publishes_nothing() {
        let mut scene = Scene::new();
        drop(scene.owner.take());
        let found = json(&scene.file_inspect().expect(5));
        scene.invocation("resolve", &["--rationale", ""]).expect(2);
        scene
            .invocation("resolve", &["--rationale", "not wanted"])
            .expect(0);
        scene
            .file_recover(found["snapshot_hash"].as_str().unwrap())
            .expect(3);
        assert!(!scene.target().exists() && scene.candidate().exists());
    }

    #[test]
    fn an_id_that_was_used_is_unresolved_and_never_runs() {
        let mut scene = Scene::new();
        let run = scene.run.to_string();
        let words = [
            "--project",
            "project",
            "call",
            "copy_csv",
            "--arg",
            "input=data/example.csv",
            "--arg",
            "output=out/copy.csv",
            "--invocation-id",
            &run,
        ];
        drop(scene.owner.take());
        scene
            .desk
            .symbi(&words)
            .expect(5)
            .says("unresolved")
            .says("invocation inspect");
        scene
            .invocation("resolve", &["--rationale", "never mind"])
            .expect(0);
        scene.desk.symbi(&words).expect(3).says("never mind");
        assert!(!scene.desk.project().join("out/copy.csv").exists());
    }

    #[test]
    fn a_repeated_id_gives_the_saved_result_and_belongs_to_one_request() {
        let desk = Desk::empty();
        desk.symbi(&["init", "project"]).expect(0);
        let run = RunId::new().to_string();
        let call = |output: &str| {
            let output = format!("output=out/{output}");
            desk.symbi(&[
                "--project",
                "project",
                "--json",
                "call",
                "copy_csv",
                "--arg",
                "input=data/example.csv",
                "--arg",
                &output,
                "--invocation-id",
                &run,
            ])
        };
        let first = call("copy.csv").expect(0);
        assert_eq!(json(&first)["run_id"], run.as_str());
        fs::remove_file(desk.project().join("out/copy.csv")).unwrap();
        let again = call("copy.csv").expect(0);
        assert_eq!(first.stdout, again.stdout);
        assert!(!desk.project().join("out/copy.csv").exists());
        call("other.csv").expect(3).says("another request");
        let folder = desk.project().join(".symbiont/invocations").join(&run);
        for (name, mode) in [("", 0o700), ("claim", 0o600), ("result", 0o600)] {
            let mode_found = fs::metadata(folder.join(name))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode_found & 0o777, mode, "{name}");
        }
        let result = fs::read_to_string(folder.join("result")).unwrap();
        fs::write(
            folder.join("result"),
            result.replace("succeeded", "succeedeD"),
        )
        .unwrap();
        call("copy.csv").expect(6).says("damaged");
    }

    #[test]
    fn a_repeated_run_gives_its_saved_result_and_starts_no_agent() {
        let desk = Desk::with_agents(
            "[agents.plain]\nexecutor = \"command\"\ncommand = [\"date\", \"+%N\"]\n\
             allowed_tools = [\"word_count\"]\n",
        );
        desk.trust();
        let id = RunId::new().to_string();
        let words = ["--json", "--invocation-id", &id];
        let first = desk.run("plain", &words).expect(0);
        let again = desk.run("plain", &words).expect(0);
        assert_eq!(first.stdout, again.stdout);
        let journals = fs::read_dir(desk.project().join(".symbiont/governed")).unwrap();
        assert_eq!(journals.count(), 1);
        desk.run("plain", &["--max-calls", "3", "--invocation-id", &id])
            .expect(3)
            .says("another request");
    }

    #[test]
    fn an_id_is_free_again_where_nothing_could_begin() {
        let desk = Desk::empty();
        desk.symbi(&["init", "project"]).expect(0);
        let run = RunId::new().to_string();
        let call = |tool: &str| {
            desk.symbi(&[
                "--project",
                "project",
                "call",
                tool,
                "--arg",
                "input=data/example.csv",
                "--arg",
                "output=out/copy.csv",
                "--invocation-id",
                &run,
            ])
        };
        call("no_such_tool").expect(3);
        call("copy_csv").expect(0);
    }
}
