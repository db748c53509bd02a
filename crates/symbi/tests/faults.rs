//! A call, and a recovery, that fail or die at each of their steps; then everything that an
//! operator can do. A test build names the steps as it reaches them, so none is forgotten.

#[expect(dead_code, reason = "the desk of all command line tests")]
#[path = "commands/desk.rs"]
#[cfg(test)]
mod desk;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::PathBuf;

    use model::RunId;
    use sandbox::lease::LEASE_LABEL;
    use serde_json::Value;

    use crate::desk::{Desk, Ended, until};

    /// One call, by its id.
    struct Case<'d> {
        desk: &'d Desk,
        id: String,
    }

    const ORDINARY: u32 = 1001;

    fn desk() -> Desk {
        with_project(Desk::empty())
    }

    fn with_project(desk: Desk) -> Desk {
        desk.symbi(&["init", "project"]).expect(0);
        let theirs = desk.project().join("out/theirs");
        fs::write(&theirs, "theirs").unwrap();
        desk
    }

    /// The same on a container tier, with the engine of `./test`.
    fn desk_on(tier: &str) -> Desk {
        let told = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| panic!("`{name}` is not set: run ./test"))
        };
        let (image, socket) = (told("SYMBI_TEST_IMAGE"), told("SYMBI_TEST_ENGINE"));
        let desk = desk();
        let config = format!(
            "[sandbox]\ntier = \"{tier}\"\n[sandbox.{tier}]\nimage = \"{image}\"\n\
             socket = \"{socket}\"\nmemory_mib = 256\n\
             volumes = [\"./data:/workspace/data:ro\", \"./out:/workspace/out:rw\"]\n"
        );
        fs::write(desk.project().join("symbiont.toml"), config).unwrap();
        desk.trust();
        desk
    }

    fn content(desk: &Desk) -> Vec<u8> {
        fs::read(desk.project().join("data/example.csv")).unwrap()
    }

    impl<'d> Case<'d> {
        fn new(desk: &'d Desk) -> Self {
            let id = RunId::new().to_string();
            Self { desk, id }
        }

        fn call(&self, variable: (&str, &str)) -> Ended {
            let output = format!("output=out/{}.csv", self.id);
            let words = [
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
                &self.id,
            ];
            with(self.desk, variable, &words)
        }

        fn target(&self) -> PathBuf {
            self.desk.project().join(format!("out/{}.csv", self.id))
        }

        fn journal(&self) -> Option<Vec<u8>> {
            let name = format!(".symbiont/governed/{}.jsonl", self.id);
            fs::read(self.desk.project().join(name)).ok()
        }

        fn invocation(&self, command: &str, more: &[&str], variable: (&str, &str)) -> Ended {
            let mut words = vec!["--project", "project", "--json", "invocation", command];
            words.extend(["--id", &self.id]);
            words.extend(more);
            with(self.desk, variable, &words)
        }

        fn inspect(&self) -> Value {
            json(&self.invocation("inspect", &[], NOTHING))
        }

        /// The publication that an intent left open.
        fn open_publication(&self) -> Option<String> {
            let seen = self.inspect();
            let all = seen["publications"].as_array()?.clone();
            let open = all.iter().find(|it| it["state"] == "open")?;
            Some(open["publication_id"].as_str()?.to_owned())
        }

        fn reviewed(&self, publication: &str) -> Value {
            let words = ["--publication", publication];
            json(&self.invocation("file-inspect", &words, NOTHING))
        }

        fn recover(&self, publication: &str, variable: (&str, &str)) -> Ended {
            let seen = self.reviewed(publication);
            let hash = seen["snapshot_hash"].as_str().unwrap_or_default();
            let words = ["--publication", publication, "--snapshot-hash", hash];
            self.invocation("file-recover", &words, variable)
        }

        /// The file is absent, or all of it is there and right.
        #[track_caller]
        fn target_is_whole(&self, what: &str) -> bool {
            match fs::read(self.target()) {
                Ok(found) => {
                    assert_eq!(found, content(self.desk), "{what}: a partial file");
                    true
                }
                Err(_) => false,
            }
        }

        /// An operator finishes what an intent left open, twice, with one effect.
        #[track_caller]
        fn recovers(&self, publication: &str, what: &str) {
            let before = self.journal();
            let state = self.reviewed(publication)["state"].clone();
            assert!(
                state == "ready_to_publish" || state == "published",
                "{what}: {state}"
            );
            let inode = fs::metadata(self.target()).map(|it| it.ino()).ok();
            let seen = self.reviewed(publication);
            let hash = seen["snapshot_hash"].as_str().unwrap();
            let words = ["--publication", publication, "--snapshot-hash", hash];
            let first = self.invocation("file-recover", &words, NOTHING).expect(0);
            let again = self.invocation("file-recover", &words, NOTHING).expect(0);
            assert_eq!(first.stdout, again.stdout, "{what}");
            assert!(self.target_is_whole(what), "{what}");
            let now = fs::metadata(self.target()).unwrap().ino();
            assert!(inode.is_none_or(|inode| inode == now), "{what}");
            assert_eq!(before, self.journal(), "{what}: the journal was changed");
        }

        /// The same id does not do its work a second time.
        #[track_caller]
        fn runs_no_second_time(&self, what: &str) {
            let (before, inode) = (self.journal(), self.inode());
            let again = self.call(NOTHING);
            if before.as_ref().is_some_and(|it| !it.is_empty()) {
                assert_eq!(before, self.journal(), "{what}: {}", again.stderr);
                assert_eq!(inode, self.inode(), "{what}");
            }
            self.target_is_whole(what);
        }

        fn inode(&self) -> Option<u64> {
            fs::metadata(self.target()).map(|it| it.ino()).ok()
        }
    }

    /// Runs `symbi` with a variable more.
    fn with(desk: &Desk, (name, value): (&str, &str), words: &[&str]) -> Ended {
        let script = format!("export {name}='{value}'; exec \"$0\" \"$@\"");
        desk.shell(&script, words)
    }

    const NOTHING: (&str, &str) = ("NOTHING", "");

    fn json(ended: &Ended) -> Value {
        serde_json::from_str(&ended.stdout).unwrap_or_default()
    }

    /// The steps in the log as `POINT@TIME`.
    fn steps(desk: &Desk, run: impl FnOnce((&str, &str)) -> Ended) -> Vec<String> {
        let log = desk.path("steps");
        let _ = fs::remove_file(&log);
        run(("SYMBI_FAULT_LOG", log.to_str().unwrap())).expect(0);
        let mut times = BTreeMap::new();
        let text = fs::read_to_string(&log).unwrap();
        let number = |name: &str| {
            let time = times.entry(name.to_owned()).or_insert(0);
            *time += 1;
            format!("{name}@{time}")
        };
        text.lines().map(number).collect()
    }

    fn steps_of_a_call(desk: &Desk) -> Vec<String> {
        steps(desk, |log| Case::new(desk).call(log))
    }

    fn steps_of_a_recovery(desk: &Desk) -> Vec<String> {
        let (case, publication) = interrupted(desk);
        steps(desk, |log| case.recover(&publication, log))
    }

    /// A call that died between its intent and its rename.
    fn interrupted(desk: &Desk) -> (Case<'_>, String) {
        let case = Case::new(desk);
        case.call(("SYMBI_FAULT", "publish.rename@1=kill"));
        let publication = case.open_publication().unwrap();
        (case, publication)
    }

    #[test]
    fn a_call_and_a_recovery_reach_every_point_that_the_program_lists() {
        let desk = desk();
        let listed = desk.symbi(&["faults"]).expect(0).stdout;
        // A supervisor's are killed at in `supervised`.
        let ours = listed.lines().filter(|it| !it.starts_with("supervisor."));
        let listed: BTreeSet<_> = ours.collect();
        let steps = [steps_of_a_call(&desk), steps_of_a_recovery(&desk)].concat();
        let reached = steps.iter().map(|it| it.split('@').next().unwrap());
        assert_eq!(listed, reached.collect());
        assert!(steps.len() > listed.len());
    }

    fn each_step_of_a_call(effect: &str) {
        let desk = desk();
        each_step_of_a_call_by(&desk, effect);
        nothing_is_left(&desk);
    }

    fn each_step_of_a_call_on(tier: &str, effect: &str) {
        let desk = desk_on(tier);
        each_step_of_a_call_by(&desk, effect);
        nothing_of_containers_is_left(&desk);
    }

    fn each_step_of_a_call_by(desk: &Desk, effect: &str) {
        let killed = effect == "kill";
        for step in steps_of_a_call(desk) {
            let fault = format!("{step}={effect}");
            let case = Case::new(desk);
            let ended = case.call(("SYMBI_FAULT", &fault));
            let what = format!("{fault}: {:?} {}", ended.code, ended.stderr);
            assert_eq!(ended.code.is_none(), killed, "{what}");
            let published = case.target_is_whole(&what);
            assert!(published || ended.code != Some(0), "{what}");
            if let Some(publication) = case.open_publication() {
                assert!(ended.code.is_none_or(|it| it >= 5), "{what}");
                case.recovers(&publication, &what);
            }
            case.runs_no_second_time(&what);
        }
    }

    fn each_step_of_a_recovery(effect: &str) {
        let desk = desk();
        for step in steps_of_a_recovery(&desk) {
            let fault = format!("{step}={effect}");
            let (case, publication) = interrupted(&desk);
            let before = case.journal();
            let ended = case.recover(&publication, ("SYMBI_FAULT", &fault));
            let what = format!("{fault}: {:?} {}", ended.code, ended.stderr);
            assert_eq!(ended.code.is_none(), effect == "kill", "{what}");
            let published = case.target_is_whole(&what);
            assert!(published || ended.code != Some(0), "{what}");
            assert_eq!(before, case.journal(), "{what}: the journal was changed");
            if case.open_publication().is_some() {
                case.recovers(&publication, &what);
            }
            assert!(case.target_is_whole(&what), "{what}");
            case.runs_no_second_time(&what);
        }
        nothing_is_left(&desk);
    }

    #[test]
    fn a_file_that_somebody_put_at_the_target_of_a_killed_call_is_never_replaced() {
        let desk = desk();
        for step in steps_of_a_call(&desk) {
            let case = Case::new(&desk);
            case.call(("SYMBI_FAULT", &format!("{step}=kill")));
            if case.target().exists() {
                continue;
            }
            fs::write(case.target(), "theirs").unwrap();
            let inode = case.inode();
            if let Some(publication) = case.open_publication() {
                assert_eq!(case.reviewed(&publication)["state"], "conflict", "{step}");
                case.recover(&publication, NOTHING).expect(5);
            }
            case.call(NOTHING);
            assert_eq!(fs::read(case.target()).unwrap(), b"theirs", "{step}");
            assert_eq!(inode, case.inode(), "{step}");
        }
    }

    /// After one more call: no candidate, no charge, no mark; all journals verify.
    fn nothing_is_left(desk: &Desk) {
        Case::new(desk).call(NOTHING).expect(0);
        desk.nothing_is_left();
        nothing_of_the_project_is_left(desk);
    }

    /// No lease, container or file of a worker either: the supervisor of the killed calls lives.
    fn nothing_of_containers_is_left(desk: &Desk) {
        let engine = sandbox::engine::Engine::at(std::env::var("SYMBI_TEST_ENGINE").unwrap());
        let store = fs::read_to_string(desk.path("state/symbi/supervisor/store")).unwrap();
        let ours = || {
            let filter = sandbox::engine::ContainerFilter::default().with_label(LEASE_LABEL);
            let all = engine.list(&filter).unwrap().into_iter();
            all.filter(|it| it.labels[LEASE_LABEL].starts_with(store.trim()))
                .count()
        };
        until("no container, and no lease", || {
            let status = json(&desk.symbi(&["sandbox", "status", "--json"]));
            ours() == 0 && status["leases"].as_array().is_some_and(Vec::is_empty)
        });
        Case::new(desk).call(NOTHING).expect(0);
        for folder in ["workers", "staging"] {
            let left = fs::read_dir(desk.path("state/symbi").join(folder)).unwrap();
            assert_eq!(left.count(), 0, "{folder}");
        }
        nothing_of_the_project_is_left(desk);
    }

    fn nothing_of_the_project_is_left(desk: &Desk) {
        for folder in ["out/.symbi-candidates", ".symbiont/starting"] {
            let left = fs::read_dir(desk.project().join(folder)).map(Iterator::count);
            assert_eq!(left.unwrap_or(0), 0, "{folder}");
        }
        let theirs = fs::read(desk.project().join("out/theirs")).unwrap();
        assert_eq!(theirs, b"theirs");
        let words = [
            "--project",
            "project",
            "--json",
            "audit",
            "list",
            "--strict",
        ];
        let listed = desk.symbi(&words);
        let all = json(&listed);
        let runs = all["runs"].as_array().unwrap();
        let good = |run: &&Value| run["verdict"] == "intact" || run["verdict"] == "unterminated";
        let bad: Vec<_> = runs.iter().filter(|run| !good(run)).collect();
        assert!(bad.is_empty() && runs.len() > 10, "{bad:?}");
        assert_eq!(all["unknown_to_ledger"].as_array().map(Vec::len), Some(0));
    }

    #[test]
    fn killed_at_each_step_of_a_call_it_is_whole_or_absent_and_can_be_recovered() {
        each_step_of_a_call("kill");
    }

    #[test]
    fn killed_at_each_step_an_ordinary_users_call_is_whole_or_absent_and_can_be_recovered() {
        // Whoever is no root has seen it above.
        if rustix::process::geteuid().is_root() {
            let desk = Desk::empty().given_to(ORDINARY, &["symbi", "symbi-init"]);
            let desk = with_project(desk);
            each_step_of_a_call_by(&desk, "kill");
            nothing_is_left(&desk);
        }
    }

    #[test]
    #[ignore = "needs docker: run ./test"]
    fn killed_at_each_step_a_call_on_docker_is_whole_or_absent_and_leaves_no_container() {
        each_step_of_a_call_on("docker", "kill");
    }

    #[test]
    #[ignore = "needs docker: run ./test"]
    fn killed_at_each_step_a_call_on_gvisor_is_whole_or_absent_and_leaves_no_container() {
        each_step_of_a_call_on("gvisor", "kill");
    }

    #[test]
    #[ignore = "needs docker: run ./test"]
    fn with_a_full_disk_at_each_step_a_call_on_docker_leaves_no_container() {
        each_step_of_a_call_on("docker", "ENOSPC");
    }

    #[test]
    fn with_a_full_disk_at_each_step_of_a_call_it_is_whole_or_absent_and_can_be_recovered() {
        each_step_of_a_call("ENOSPC");
    }

    #[test]
    fn with_an_io_error_at_each_step_of_a_call_it_is_whole_or_absent_and_can_be_recovered() {
        each_step_of_a_call("EIO");
    }

    #[test]
    fn interrupted_at_each_step_of_a_call_it_is_whole_or_absent_and_can_be_recovered() {
        each_step_of_a_call("EINTR");
    }

    #[test]
    fn with_a_short_write_at_each_step_of_a_call_it_is_whole_or_absent_and_can_be_recovered() {
        each_step_of_a_call("short");
    }

    #[test]
    fn killed_at_each_step_of_a_recovery_another_recovery_finishes_it() {
        each_step_of_a_recovery("kill");
    }

    #[test]
    fn with_a_failure_at_each_step_of_a_recovery_another_recovery_finishes_it() {
        for effect in ["ENOSPC", "EIO", "EINTR", "short"] {
            each_step_of_a_recovery(effect);
        }
    }
}
