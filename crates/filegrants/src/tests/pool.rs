//! The staging pool: what is charged, who is refused, and what death leaves.

use std::process::{Child, Command, Stdio};

use super::fixture::{LIMIT, Project, creates, path, reads};
use crate::limits::STAGED_ENTRY_BYTES;
use crate::{ChargeState, FileBroker, FileRefusal, Holder, PoolRefusal, StagingPool};

const ROOM: u64 = 1 << 16;

fn pool(project: &Project) -> StagingPool {
    StagingPool::open_ambient(&project.path.join("staging"), ROOM).unwrap()
}

fn bounded(project: &Project, bytes: u64) -> FileBroker {
    project.broker().with_staging_bytes_max(bytes).unwrap()
}

#[test]
fn a_call_is_charged_its_inputs_its_largest_output_and_each_entry() {
    let project = Project::new();
    let mut request = creates("out/b.csv");
    request.reads = reads(&["data/a.csv"]).reads;
    let wanted = 8 + LIMIT + 2 * STAGED_ENTRY_BYTES;
    let plan = bounded(&project, wanted).plan(&request).unwrap();
    let survey = pool(&project).survey().unwrap();
    assert_eq!(survey.len(), 1);
    assert_eq!(
        (survey[0].bytes, survey[0].state),
        (wanted, ChargeState::Live)
    );
    assert_eq!(survey[0].holder, Some(Holder::this()));
    drop(plan);
    assert_eq!(project.staged(), 0);
}

#[test]
fn one_byte_too_few_refuses_the_call_before_anything_is_copied() {
    let project = Project::new();
    let wanted = 8 + STAGED_ENTRY_BYTES;
    match bounded(&project, wanted - 1).plan(&reads(&["data/a.csv"])) {
        Err(refusal @ FileRefusal::Staging(PoolRefusal::TooLarge { .. })) => {
            assert!(refusal.is_capacity());
            assert!(refusal.to_string().contains("staging_mib"), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(project.staged(), 0);
    assert!(
        bounded(&project, wanted)
            .plan(&reads(&["data/a.csv"]))
            .is_ok()
    );
}

#[test]
fn a_full_pool_refuses_and_says_who_holds_it_until_a_charge_is_returned() {
    let project = Project::new();
    let pool = pool(&project);
    let held = pool.reserve(ROOM - 10).unwrap();
    let _small = pool.reserve(10).unwrap();
    match pool.reserve(1) {
        Err(refusal @ PoolRefusal::Full { held: ROOM, .. }) => {
            let pid = std::process::id();
            let text = refusal.to_string();
            assert!(
                text.contains(&format!("process {pid} (65536 bytes)")),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    drop(held);
    assert!(pool.reserve(ROOM - 10).is_ok());
}

#[test]
fn a_failed_snapshot_returns_the_charge_with_the_refusal() {
    let project = Project::new();
    std::fs::create_dir(project.file("data/sub")).unwrap();
    assert!(
        project
            .broker()
            .plan(&reads(&["data/a.csv", "data/sub"]))
            .is_err()
    );
    assert_eq!(project.staged(), 0);
}

/// A process that holds the whole pool until its input ends.
fn holding(project: &Project) -> (Child, Holder) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tests::pool::holding_child",
            "--ignored",
            "--nocapture",
        ])
        .current_dir(&project.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let holder = Holder::of(child.id()).unwrap();
    let pool = pool(project);
    for _ in 0..1000 {
        if !pool.survey().unwrap().is_empty() {
            return (child, holder);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("the child holds nothing");
}

#[test]
#[ignore = "the child of the test below, which runs it"]
fn holding_child() {
    let here = std::env::current_dir().unwrap();
    if !here.join("staging").is_dir() {
        return;
    }
    let project = Project::at(&here);
    let _charge = pool(&project).reserve(ROOM).unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn the_charge_of_a_killed_process_is_seen_as_dead_and_reclaimed_by_the_next() {
    let project = Project::new();
    let pool = pool(&project);
    let (mut child, holder) = holding(&project);
    assert!(matches!(pool.reserve(1), Err(PoolRefusal::Full { .. })));
    child.kill().unwrap();
    child.wait().unwrap();
    for _ in 0..2 {
        let survey = pool.survey().unwrap();
        assert_eq!(
            (survey[0].holder, survey[0].state),
            (Some(holder), ChargeState::Dead)
        );
    }
    drop(pool.reserve(ROOM).unwrap());
    assert_eq!(project.staged(), 0);
}

#[test]
fn the_charge_of_a_killed_process_stays_while_a_container_may_have_its_files() {
    let project = Project::new();
    let pool = pool(&project);
    let (mut child, holder) = holding(&project);
    pool.refer("lease-1", holder).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(pool.survey().unwrap()[0].state, ChargeState::Referenced);
    assert!(matches!(pool.reserve(1), Err(PoolRefusal::Full { .. })));
    assert!(pool.reclaim().unwrap().is_empty());
    assert_eq!(pool.references().unwrap(), ["lease-1"]);
    pool.dismiss("lease-1").unwrap();
    pool.dismiss("lease-1").unwrap();
    assert_eq!(pool.reclaim().unwrap().len(), 1);
    assert_eq!(project.staged(), 0);
}

#[test]
fn a_pool_that_cannot_be_written_says_why_and_what_helps() {
    let project = Project::new();
    let pool = pool(&project);
    std::fs::remove_dir_all(project.path.join("staging")).unwrap();
    let said = pool.reserve(1).unwrap_err().to_string();
    assert!(
        said.contains("cannot write a charge: No such file"),
        "{said}"
    );
    assert!(said.contains("; make room there"), "{said}");
}

#[test]
fn a_charge_that_was_never_written_whole_is_dead() {
    let project = Project::new();
    std::fs::write(project.path.join("staging/charge-0"), b"{\"hol").unwrap();
    let pool = pool(&project);
    assert_eq!(pool.survey().unwrap()[0].state, ChargeState::Dead);
    drop(pool.reserve(ROOM).unwrap());
    assert_eq!(project.staged(), 0);
}

#[test]
fn a_kept_charge_outlives_its_call() {
    let project = Project::new();
    pool(&project).reserve(7).unwrap().keep();
    assert_eq!(pool(&project).survey().unwrap()[0].state, ChargeState::Live);
}

#[test]
fn a_reference_is_a_plain_name() {
    let project = Project::new();
    for bad in ["", "a/b", "..", "a.b", "a b"] {
        assert!(pool(&project).refer(bad, Holder::this()).is_err(), "{bad}");
    }
}

#[test]
fn threads_of_one_process_never_hold_more_than_the_pool() {
    let project = Project::new();
    let request = reads(&["data/a.csv"]);
    let wanted = 8 + STAGED_ENTRY_BYTES;
    let broker = bounded(&project, 3 * wanted);
    let served = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let plan = broker.plan(&request);
                    let held = pool(&project).survey().unwrap();
                    let sum: u64 = held.iter().map(|it| it.bytes).sum();
                    assert!(sum <= 3 * wanted, "{sum}");
                    plan.is_ok()
                })
            })
            .collect();
        calls
            .into_iter()
            .map(|it| it.join().unwrap())
            .filter(|it| *it)
            .count()
    });
    assert!(served >= 3, "{served}");
    assert_eq!(project.staged(), 0);
    assert!(project.exists(path("data/a.csv").as_str()));
}
