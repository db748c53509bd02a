//! A project's own records, its trust, and the user's configuration.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Barrier;

use crate::support::{Home, chmod, give_away, mode};
use model::Digest;
use project::limits;
use project::{
    ChangeKind, Credential, FolderError, Project, StateError, Trust, TrustStatus, UnsafeReason,
    UnusableRecord, UserConfig, UserConfigError, read_key_file,
};

fn reason(error: StateError) -> UnsafeReason {
    match error {
        StateError::Folder(FolderError::Unsafe(place)) => place.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_records_folder_is_made_private_and_ignored_by_git() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    assert_eq!(project.existing_id().unwrap(), None);
    let state = project.state().unwrap();
    let path = home.project().join(".symbiont");
    assert_eq!(state.path(), path);
    for folder in ["", "governed", "evidence", "invocations"] {
        assert_eq!(mode(&path.join(folder)), 0o700, "{folder}");
    }
    assert_eq!(fs::read_to_string(path.join(".gitignore")).unwrap(), "*\n");
    assert_eq!(mode(&path.join("id")), 0o600);
    assert_eq!(project.existing_id().unwrap(), Some(state.project_id()));
    let names = fs::read_dir(&path).unwrap().count();
    assert_eq!(names, 5, "nothing is left aside");
}

#[test]
fn eight_racing_threads_get_one_id() {
    for _ in 0..20 {
        let home = Home::with_project();
        let start = Barrier::new(8);
        let race = || {
            let project = Project::open(&home.project()).unwrap();
            start.wait();
            project.state().unwrap().project_id()
        };
        let ids: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(race)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        let names = fs::read_dir(home.project().join(".symbiont"))
            .unwrap()
            .count();
        assert_eq!(names, 5);
    }
}

#[test]
fn an_id_stays_across_openings() {
    let home = Home::with_project();
    let first = Project::open(&home.project())
        .unwrap()
        .state()
        .unwrap()
        .project_id();
    let second = Project::open(&home.project())
        .unwrap()
        .state()
        .unwrap()
        .project_id();
    assert_eq!(first, second);
    assert_eq!(
        home.dirs().key_path(&first),
        home.root.join(format!("state/symbi/keys/{first}.ed25519"))
    );
}

#[test]
fn records_that_are_not_private_are_refused() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    project.state().unwrap();
    let path = home.project().join(".symbiont");
    chmod(&path, 0o755);
    let open = UnsafeReason::Open {
        mode: 0o755,
        folder: true,
    };
    assert_eq!(reason(project.state().unwrap_err()), open);
    chmod(&path, 0o700);
    chmod(&path.join("id"), 0o644);
    let open = UnsafeReason::Open {
        mode: 0o644,
        folder: false,
    };
    assert_eq!(reason(project.state().unwrap_err()), open);
    chmod(&path.join("id"), 0o600);
    chmod(&path.join("governed"), 0o770);
    let open = UnsafeReason::Open {
        mode: 0o770,
        folder: true,
    };
    assert_eq!(reason(project.state().unwrap_err()), open);
}

#[test]
fn linked_records_are_refused() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    let elsewhere = home.root.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let path = home.project().join(".symbiont");
    symlink(&elsewhere, &path).unwrap();
    assert_eq!(reason(project.state().unwrap_err()), UnsafeReason::Link);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    chmod(&path, 0o700);
    symlink(elsewhere.join("id"), path.join("id")).unwrap();
    assert_eq!(reason(project.state().unwrap_err()), UnsafeReason::Link);
    assert!(!elsewhere.join("id").exists());
}

#[test]
fn records_of_another_owner_are_refused() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    project.state().unwrap();
    let path = home.project().join(".symbiont");
    if !give_away(&path) {
        return;
    }
    let owner = UnsafeReason::Owner {
        uid: 1001,
        root_allowed: false,
    };
    assert_eq!(reason(project.state().unwrap_err()), owner);
}

#[test]
fn a_damaged_id_is_an_error_with_its_remedy() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    project.state().unwrap();
    let path = home.project().join(".symbiont/id");
    for bad in ["", "x\n", "00000000-0000-4000-8000-00000000000G\n"] {
        fs::write(&path, bad).unwrap();
        let error = project.state().unwrap_err();
        assert!(matches!(error, StateError::Id { .. }), "{bad:?}");
        assert!(
            error.to_string().contains("help: put the file back"),
            "{error}"
        );
    }
}

#[test]
fn a_project_is_untrusted_until_its_operator_says_so() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    let status = Trust::status(&project, &home.dirs()).unwrap();
    assert!(matches!(status, TrustStatus::NeverTrusted));
    assert!(
        !home.project().join(".symbiont").exists(),
        "looking makes nothing"
    );
    let verdict = Digest::of(b"verdict");
    Trust::grant(&project, &home.dirs(), Some(verdict)).unwrap();
    match Trust::status(&project, &home.dirs()).unwrap() {
        TrustStatus::Trusted { policy_verdict } => assert_eq!(policy_verdict, Some(verdict)),
        other => panic!("{other:?}"),
    }
    let folder = home.root.join("state/symbi/trust");
    assert_eq!(mode(&folder), 0o700);
    let records: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert_eq!(records.len(), 1);
    assert_eq!(mode(&records[0]), 0o600);
}

#[test]
fn every_changed_file_is_shown_with_its_difference() {
    let home = Home::with_project();
    Trust::grant(&Project::open(&home.project()).unwrap(), &home.dirs(), None).unwrap();
    let copy = home.project().join("policies/call/copy.cedar");
    let text = fs::read_to_string(&copy)
        .unwrap()
        .replace(" == Agent::\"operator\"", "");
    fs::write(&copy, text).unwrap();
    fs::remove_file(home.project().join("tools/word_count.clad.toml")).unwrap();
    home.write(
        "policies/run/all.cedar",
        "permit(principal, action, resource); // \u{1b}[1A\n",
    );
    let project = Project::open(&home.project()).unwrap();
    let TrustStatus::Changed(changes) = Trust::status(&project, &home.dirs()).unwrap() else {
        panic!("changed");
    };
    let kinds: Vec<_> = changes
        .files
        .iter()
        .map(|f| (f.path.as_str(), f.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            ("policies/call/copy.cedar", ChangeKind::Changed),
            ("policies/run/all.cedar", ChangeKind::Added),
            ("tools/word_count.clad.toml", ChangeKind::Removed),
        ]
    );
    assert!(!changes.folder_replaced && !changes.id_replaced);
    insta::assert_snapshot!("trust_changes", changes.to_string());
    Trust::grant(&project, &home.dirs(), None).unwrap();
    let status = Trust::status(&project, &home.dirs()).unwrap();
    assert!(matches!(
        status,
        TrustStatus::Trusted {
            policy_verdict: None
        }
    ));
}

#[test]
fn another_folder_at_a_trusted_path_is_not_trusted() {
    let home = Home::with_project();
    Trust::grant(&Project::open(&home.project()).unwrap(), &home.dirs(), None).unwrap();
    fs::rename(home.project(), home.root.join("old")).unwrap();
    fs::create_dir(home.project()).unwrap();
    project::scaffold(&home.project()).unwrap();
    let project = Project::open(&home.project()).unwrap();
    let TrustStatus::Changed(changes) = Trust::status(&project, &home.dirs()).unwrap() else {
        panic!("changed");
    };
    assert!(changes.folder_replaced && changes.id_replaced && changes.files.is_empty());
}

#[test]
fn a_replaced_id_ends_trust() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    Trust::grant(&project, &home.dirs(), None).unwrap();
    fs::remove_file(home.project().join(".symbiont/id")).unwrap();
    project.state().unwrap();
    let TrustStatus::Changed(changes) = Trust::status(&project, &home.dirs()).unwrap() else {
        panic!("changed");
    };
    assert!(changes.id_replaced && !changes.folder_replaced);
}

#[test]
fn a_record_that_others_could_have_written_does_not_count() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    Trust::grant(&project, &home.dirs(), None).unwrap();
    let folder = home.root.join("state/symbi/trust");
    let record = fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let unusable = |found: &str| match Trust::status(&project, &home.dirs()).unwrap() {
        TrustStatus::Unusable(reason) => {
            let reason = reason.to_string();
            assert!(reason.contains(found), "{reason}");
        }
        other => panic!("{other:?}"),
    };
    chmod(&record, 0o644);
    unusable("has mode 0644");
    chmod(&record, 0o600);
    chmod(&folder, 0o755);
    unusable("has mode 0755");
    chmod(&folder, 0o700);
    if give_away(&record) {
        unusable("belongs to uid 1001");
    }
    fs::remove_file(&record).unwrap();
    symlink("elsewhere", &record).unwrap();
    unusable("is a symbolic link");
    fs::remove_file(&record).unwrap();
    fs::write(&record, "{\"v\":1}").unwrap();
    chmod(&record, 0o600);
    unusable("cannot be read: missing field");
    let status = Trust::status(&project, &home.dirs()).unwrap();
    assert!(matches!(
        status,
        TrustStatus::Unusable(UnusableRecord::Content { .. })
    ));
    Trust::grant(&project, &home.dirs(), None).unwrap();
    let status = Trust::status(&project, &home.dirs()).unwrap();
    assert!(matches!(status, TrustStatus::Trusted { .. }));
}

#[test]
fn a_missing_user_configuration_is_empty() {
    let home = Home::new();
    assert_eq!(
        UserConfig::load(&home.dirs()).unwrap(),
        UserConfig::default()
    );
    fs::create_dir_all(home.dirs().config).unwrap();
    assert_eq!(
        UserConfig::load(&home.dirs()).unwrap(),
        UserConfig::default()
    );
}

#[test]
fn a_user_configuration_that_others_can_write_is_refused() {
    let home = Home::new();
    let path = home.dirs().config.join("config.toml");
    fs::create_dir_all(home.dirs().config).unwrap();
    fs::write(
        &path,
        "[providers.work]\nbase_url = \"https://h\"\napi_key_env = \"KEY\"\n",
    )
    .unwrap();
    chmod(&path, 0o644);
    let config = UserConfig::load(&home.dirs()).unwrap();
    let work = &config.providers["work"];
    assert_eq!(work.credential, Credential::Environment("KEY".into()));
    let refused = |found: &str| match UserConfig::load(&home.dirs()) {
        Err(UserConfigError::Folder(error)) => {
            assert!(error.to_string().contains(found), "{error}");
        }
        other => panic!("{other:?}"),
    };
    chmod(&path, 0o664);
    refused("chmod go-w");
    chmod(&path, 0o600);
    chmod(&home.dirs().config, 0o777);
    refused("has mode 0777");
    chmod(&home.dirs().config, 0o700);
    if give_away(&path) {
        refused("belongs to uid 1001");
    }
}

#[test]
fn a_key_file_is_private_and_holds_one_line() {
    let home = Home::new();
    let path = home.root.join("key");
    assert!(
        read_key_file(&path)
            .unwrap_err()
            .to_string()
            .contains("is missing\n  help: put the key there")
    );
    fs::write(&path, "sk-1\n").unwrap();
    chmod(&path, 0o600);
    assert_eq!(read_key_file(&path).unwrap().expose(), "sk-1");
    chmod(&path, 0o640);
    let error = read_key_file(&path).unwrap_err().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    chmod(&path, 0o600);
    for bad in ["", "\n", "sk 1", "sk\n1", "sk\u{e9}"] {
        fs::write(&path, bad).unwrap();
        let error = read_key_file(&path).unwrap_err().to_string();
        assert!(
            error.contains("one line of printable ASCII"),
            "{bad:?}: {error}"
        );
    }
}

#[test]
fn the_users_private_folders_are_made_and_checked() {
    let home = Home::new();
    let dirs = home.dirs();
    assert_eq!(
        dirs.keys().unwrap().path(),
        home.root.join("state/symbi/keys")
    );
    assert_eq!(mode(&dirs.state), 0o700);
    assert_eq!(dirs.sockets().unwrap().path(), dirs.runtime);
    assert_eq!(mode(&dirs.runtime), 0o700);
    chmod(&dirs.runtime, 0o711);
    assert!(matches!(dirs.sockets(), Err(FolderError::Unsafe(_))));
}

#[test]
fn files_of_the_user_are_read_at_their_size_limit_and_refused_past_it() {
    let home = Home::new();
    let key = home.root.join("key");
    let too_large = |error: String| error.contains("bytes allowed");
    let max = usize::try_from(limits::KEY_FILE_BYTES_MAX).unwrap();
    fs::write(&key, "k".repeat(max)).unwrap();
    chmod(&key, 0o600);
    assert!(read_key_file(&key).is_ok());
    fs::write(&key, "k".repeat(max + 1)).unwrap();
    assert!(too_large(read_key_file(&key).unwrap_err().to_string()));

    let config = home.dirs().config.join("config.toml");
    let max = usize::try_from(limits::USER_CONFIG_BYTES_MAX).unwrap();
    fs::create_dir_all(home.dirs().config).unwrap();
    fs::write(&config, "#".repeat(max)).unwrap();
    chmod(&config, 0o600);
    assert!(UserConfig::load(&home.dirs()).is_ok());
    fs::write(&config, "#".repeat(max + 1)).unwrap();
    assert!(too_large(
        UserConfig::load(&home.dirs()).unwrap_err().to_string()
    ));
}

#[test]
fn a_record_of_the_largest_project_can_be_read_back() {
    let home = Home::new();
    let max = usize::try_from(limits::CONTROL_FILE_BYTES_MAX).unwrap();
    home.write("symbiont.toml", "");
    for n in 0..limits::CONTROL_TOTAL_BYTES_MAX / limits::CONTROL_FILE_BYTES_MAX {
        home.write(&format!("policies/{n}.cedar"), "\u{1}".repeat(max));
    }
    let project = Project::open(&home.project()).unwrap();
    Trust::grant(&project, &home.dirs(), None).unwrap();
    let status = Trust::status(&project, &home.dirs()).unwrap();
    assert!(matches!(status, TrustStatus::Trusted { .. }), "{status:?}");
}

#[test]
fn records_survive_a_folder_that_cannot_be_written() {
    if crate::support::is_root() {
        return;
    }
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    chmod(&home.project(), 0o555);
    let error = project.state().unwrap_err();
    assert!(
        error.to_string().starts_with("cannot make the folder"),
        "{error}"
    );
    assert!(std::error::Error::source(&error).is_some());
    chmod(&home.project(), 0o755);
    let id = project.state().unwrap().project_id();
    chmod(&home.project(), 0o555);
    assert_eq!(project.state().unwrap().project_id(), id);
    chmod(&home.project(), 0o755);
}

#[test]
fn a_long_change_is_shown_in_brief_with_a_mark_of_what_is_missing() {
    let changed = |text: String| {
        let home = Home::with_project();
        Trust::grant(&Project::open(&home.project()).unwrap(), &home.dirs(), None).unwrap();
        home.write("policies/run/all.cedar", text);
        let project = Project::open(&home.project()).unwrap();
        match Trust::status(&project, &home.dirs()).unwrap() {
            TrustStatus::Changed(changes) => changes,
            other => panic!("{other:?}"),
        }
    };
    let short = changed("// one\n".to_owned());
    assert_eq!(short.brief(), short.to_string());
    for text in [
        "// a\n".repeat(5000),
        format!("// {}\n", "a".repeat(100_000)),
    ] {
        let long = changed(text);
        let brief = long.brief();
        assert!(brief.lines().count() <= limits::BRIEF_LINES_MAX + 1);
        assert!(brief.len() <= limits::BRIEF_BYTES_MAX + 128);
        assert!(
            brief.starts_with("added policies/run/all.cedar\n"),
            "{brief}"
        );
        assert!(
            brief.ends_with("are not shown; `symbi trust` shows all]\n"),
            "{brief}"
        );
    }
}

#[test]
fn the_help_for_a_damaged_id_keeps_the_old_history() {
    let home = Home::with_project();
    let project = Project::open(&home.project()).unwrap();
    project.state().unwrap();
    fs::write(home.project().join(".symbiont/id"), "damaged").unwrap();
    let said = home.shown(project.state().unwrap_err());
    assert!(said.contains("put the file back from a backup"), "{said}");
    let command = "mv -nT /home/me/p/.symbiont /home/me/p.symbiont-damaged && \
                   symbi --project /home/me/p trust";
    assert!(said.ends_with(command) && !said.contains("rm "), "{said}");
}
