//! Which crate may use which: the layers of the workspace, and the few outside crates that only
//! some of them may know.

use crate::fault::Fault;
use crate::metadata::{Dependency, Metadata, Package};

/// A crate and what it may use of the workspace. Each row uses rows above it only.
struct Row {
    name: &'static str,
    uses: &'static [&'static str],
}

const ROWS: &[Row] = &[
    Row {
        name: "faults",
        uses: &[],
    },
    Row {
        name: "model",
        uses: &[],
    },
    Row {
        name: "toolclad",
        uses: &["model"],
    },
    Row {
        name: "worker",
        uses: &["model"],
    },
    Row {
        name: "project",
        uses: &["model", "worker"],
    },
    Row {
        name: "journal",
        uses: &["faults", "model"],
    },
    Row {
        name: "filegrants",
        uses: &["faults", "journal", "model", "worker"],
    },
    Row {
        name: "governance",
        uses: &["filegrants", "journal", "model", "worker"],
    },
    Row {
        name: "policy",
        uses: &["model", "worker"],
    },
    Row {
        name: "approval",
        uses: &["model"],
    },
    Row {
        name: "mcp",
        uses: &["model"],
    },
    Row {
        name: "inference",
        uses: &["model"],
    },
    Row {
        name: "sandbox-init",
        uses: &[],
    },
    Row {
        name: "sandbox",
        uses: &["model", "sandbox-init", "worker"],
    },
    Row {
        name: "supervisor",
        uses: &["faults", "filegrants", "model", "sandbox", "worker"],
    },
    Row {
        name: "symbi-runtime",
        uses: &[
            "approval",
            "faults",
            "filegrants",
            "governance",
            "inference",
            "journal",
            "mcp",
            "model",
            "policy",
            "sandbox",
            "toolclad",
            "worker",
        ],
    },
    Row {
        name: "symbi",
        uses: &[
            "approval",
            "faults",
            "filegrants",
            "governance",
            "inference",
            "journal",
            "mcp",
            "model",
            "policy",
            "project",
            "sandbox",
            "sandbox-init",
            "supervisor",
            "symbi-runtime",
            "toolclad",
            "worker",
        ],
    },
    Row {
        name: "testkit",
        uses: &[
            "filegrants",
            "governance",
            "inference",
            "journal",
            "model",
            "sandbox",
            "worker",
        ],
    },
    Row {
        name: "xtask",
        uses: &["sandbox"],
    },
];

/// Crates that others use in tests only.
const DEV_ONLY: [&str; 1] = ["testkit"];

/// Outside crates that only some crates may use in what ships.
const CONFINED: &[(&str, &[&str])] = &[
    (
        "tokio",
        &["sandbox", "supervisor", "symbi-runtime", "symbi", "testkit"],
    ),
    ("hyper", &["symbi-runtime", "symbi", "testkit"]),
    ("hyper-util", &["symbi-runtime", "symbi", "testkit"]),
    ("cedar-policy", &["policy"]),
    ("ed25519-dalek", &["journal"]),
    ("clap", &["symbi"]),
    ("ssh-key", &["approval"]),
];

/// Checks the dependencies of every crate of the workspace.
pub(crate) fn check(metadata: &Metadata) -> Vec<Fault> {
    let of_package = |package: &Package| {
        let manifest = metadata.below_root(&package.manifest_path);
        let mut faults = Vec::new();
        match ROWS.iter().find(|row| row.name == package.name) {
            Some(row) => faults.extend(inner(row, &manifest, &package.dependencies)),
            None => faults.push(Fault::new(
                &manifest,
                1,
                format!("the crate `{}` is in no layer", package.name),
                "add its row to crates/xtask/src/rules/edges.rs",
            )),
        }
        faults.extend(outer(&package.name, &manifest, &package.dependencies));
        faults
    };
    metadata.members().flat_map(of_package).collect()
}

fn inner(row: &Row, manifest: &str, dependencies: &[Dependency]) -> Vec<Fault> {
    let of_workspace = dependencies
        .iter()
        .filter(|dependency| dependency.path.is_some());
    let is_wrong = |dependency: &&Dependency| {
        let name = dependency.name.as_str();
        let is_dev = dependency.kind.as_deref() == Some("dev");
        !(row.uses.contains(&name) || (is_dev && (DEV_ONLY.contains(&name) || is_above(name, row))))
    };
    let fault = |dependency: &Dependency| {
        Fault::new(
            manifest,
            1,
            format!("`{}` uses `{}`", row.name, dependency.name),
            "turn it round with a small trait, or change the table in \
             crates/xtask/src/rules/edges.rs on purpose",
        )
    };
    of_workspace.filter(is_wrong).map(fault).collect()
}

/// Whether the crate `name` stands above `row` in the table.
fn is_above(name: &str, row: &Row) -> bool {
    let above = ROWS.iter().take_while(|other| other.name != row.name);
    above.into_iter().any(|other| other.name == name)
}

fn outer(name: &str, manifest: &str, dependencies: &[Dependency]) -> Vec<Fault> {
    let ships = dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"));
    let is_wrong = |dependency: &&Dependency| {
        let mut confined = CONFINED.iter();
        confined.any(|(outside, users)| *outside == dependency.name && !users.contains(&name))
    };
    let fault = |dependency: &Dependency| {
        let what = format!("`{name}` uses `{}`, which is not for it", dependency.name);
        Fault::new(manifest, 1, what, "use the crate of ours that wraps it")
    };
    ships.filter(is_wrong).map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(name: &str, kind: Option<&str>, is_ours: bool) -> Dependency {
        Dependency {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            path: is_ours.then(|| name.into()),
        }
    }

    #[test]
    fn every_row_uses_rows_above_it_only() {
        for row in ROWS {
            for used in row.uses {
                assert!(is_above(used, row), "{} -> {used}", row.name);
            }
        }
    }

    #[test]
    fn what_tests_use_is_no_part_of_what_ships() {
        for row in ROWS {
            assert!(!row.uses.contains(&"testkit"), "{}", row.name);
        }
    }

    #[test]
    fn an_edge_outside_of_the_table_is_a_fault_and_a_test_may_look_up() {
        let row = ROWS.iter().find(|row| row.name == "governance").unwrap();
        let good = [
            dependency("model", None, true),
            dependency("testkit", Some("dev"), true),
            dependency("toolclad", Some("dev"), true),
            dependency("policy", None, false),
        ];
        assert_eq!(inner(row, "Cargo.toml", &good), []);
        let bad = [
            dependency("policy", None, true),
            dependency("testkit", None, true),
            dependency("sandbox", Some("dev"), true),
            dependency("model", Some("build"), true),
        ];
        assert_eq!(inner(row, "Cargo.toml", &bad).len(), 3);
    }

    #[test]
    fn the_async_runtime_and_the_policy_engine_stay_where_they_are() {
        let wanted = |name, kind| [dependency(name, kind, false)];
        assert_eq!(
            outer("journal", "Cargo.toml", &wanted("tokio", None)).len(),
            1
        );
        assert_eq!(
            outer("journal", "Cargo.toml", &wanted("tokio", Some("dev"))),
            []
        );
        assert_eq!(
            outer("symbi-runtime", "Cargo.toml", &wanted("tokio", None)),
            []
        );
        assert_eq!(
            outer("symbi", "Cargo.toml", &wanted("cedar-policy", None)).len(),
            1
        );
    }
}
