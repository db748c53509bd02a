//! A policy set: parsed, validated and sliced once, and never changed afterwards.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use cedar_policy::{EntityUid, PolicyId, PolicySet, Schema, ValidationMode, Validator};
use model::{Digest, SourceError, SourceErrors};

use crate::fault;
use crate::limits::FAULTS_COUNT_MAX;
use crate::lint;
use crate::parse::{self, PlacedPolicy};
use crate::schema::{self, Vocabulary};
use crate::shape::{LaunchShape, PolicySource, ToolShape};
use crate::verdict::PolicyNote;

/// The policies of one action.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) policies: PolicySet,
    /// Some of them look at a person's approval. The others answer alike with and without one.
    pub(crate) looks_at_approval: bool,
}

impl Slice {
    fn of(action: &EntityUid, policies: &[PlacedPolicy<'_>]) -> Result<Self, SourceErrors> {
        let applying = || {
            let all = policies.iter();
            all.filter(|placed| lint::applies_to(&placed.policy, action))
        };
        let looks = |placed: &PlacedPolicy<'_>| {
            let text = placed.policy.to_string();
            APPROVAL_ATTRIBUTES.iter().any(|name| text.contains(name))
        };
        Ok(Self {
            policies: set(applying())?,
            looks_at_approval: applying().any(looks),
        })
    }
}

/// Attributes of a request that an approval changes.
const APPROVAL_ATTRIBUTES: [&str; 2] = ["has_human_approval", "approved_fingerprint"];

/// The policies of one session. Editing their files changes nothing here.
pub struct Policies {
    pub(crate) words: Vocabulary,
    pub(crate) validator: Validator,
    /// By action: the policies whose scope lets them apply to it.
    pub(crate) slices: BTreeMap<EntityUid, Slice>,
    /// By id. Cedar parses an annotation's name each time that it is asked for one.
    pub(crate) notes: HashMap<PolicyId, PolicyNote>,
    digest: Digest,
    warnings: Vec<SourceError>,
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policies")
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

impl Policies {
    /// Parses `sources`, generates the schema and validates every policy strictly against it.
    /// A policy that can never act is an error too.
    ///
    /// `launches` are the executors whose launch a policy may speak about, `principals` the
    /// names of all agents, `trusted_keys` the names of the host's own facts.
    ///
    /// # Errors
    /// Every fault with file, line, column, text and next step; at most `FAULTS_COUNT_MAX`.
    pub fn load(
        sources: &[PolicySource],
        tools: &[ToolShape],
        launches: &[LaunchShape],
        principals: &[String],
        trusted_keys: &[String],
    ) -> Result<Self, SourceErrors> {
        let words = vocabulary(tools, launches, principals, trusted_keys)?;
        let validator = Validator::new(schema(&words)?);
        let policies = parsed(sources)?;
        let all = set(&policies)?;
        let mut faults = lint::faults(&policies, &words);
        let result = validator.validate(&all, ValidationMode::Strict);
        faults.extend(fault::of_validation(&policies, &result, |placed| {
            let actions = words.subjects.values().map(|subject| &subject.action);
            let mut applicable: Vec<String> = actions
                .filter(|action| lint::applies_to(&placed.policy, action))
                .map(EntityUid::to_string)
                .collect();
            applicable.sort();
            applicable.dedup();
            applicable
        }));
        check(faults)?;
        Self::assemble(sources, words, validator, &policies)
    }

    /// The same for policies that [`Policies::load`] has accepted before, with this
    /// [`Policies::digest_of`] and the whole project's tools: nothing is validated again, and
    /// `tools` may be the few that this session serves.
    ///
    /// # Errors
    /// Faults of syntax, and of what the schema is made from.
    pub fn load_validated(
        sources: &[PolicySource],
        tools: &[ToolShape],
        launches: &[LaunchShape],
        principals: &[String],
        trusted_keys: &[String],
    ) -> Result<Self, SourceErrors> {
        let words = vocabulary(tools, launches, principals, trusted_keys)?;
        let validator = Validator::new(schema(&words)?);
        let policies = parsed(sources)?;
        Self::assemble(sources, words, validator, &policies)
    }

    fn assemble(
        sources: &[PolicySource],
        words: Vocabulary,
        validator: Validator,
        policies: &[PlacedPolicy<'_>],
    ) -> Result<Self, SourceErrors> {
        let mut slices = BTreeMap::new();
        for subject in words.subjects.values() {
            let action = &subject.action;
            slices.insert(action.clone(), Slice::of(action, policies)?);
        }
        let notes = policies
            .iter()
            .map(|it| (it.policy.id().clone(), it.note.clone()))
            .collect();
        let warnings = lint::unasked_approvals(policies, &words);
        let digest = Self::digest_of(sources);
        Ok(Self {
            words,
            validator,
            slices,
            notes,
            digest,
            warnings,
        })
    }

    /// The digest of the files that this set was made from.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// SHA-256 over the files, sorted by name: a label, then the name and the text of each,
    /// each after its length in 8 bytes, big-endian.
    #[must_use]
    pub fn digest_of(sources: &[PolicySource]) -> Digest {
        let mut sorted: Vec<&PolicySource> = sources.iter().collect();
        sorted.sort_by(|a, b| (&a.file, &a.text).cmp(&(&b.file, &b.text)));
        let mut hasher = model::Hasher::new();
        hasher.update(b"symbi-policies-v1\n");
        for source in sorted {
            for part in [&source.file, &source.text] {
                hasher.update(&(part.len() as u64).to_be_bytes());
                hasher.update(part.as_bytes());
            }
        }
        hasher.finish()
    }

    /// The generated schema in Cedar's own syntax.
    #[must_use]
    pub fn schema_text(&self) -> &str {
        &self.words.text
    }

    /// What is allowed and still looks wrong, for `policy check`.
    #[must_use]
    pub fn warnings(&self) -> &[SourceError] {
        &self.warnings
    }
}

fn vocabulary(
    tools: &[ToolShape],
    launches: &[LaunchShape],
    principals: &[String],
    trusted_keys: &[String],
) -> Result<Vocabulary, SourceErrors> {
    match schema::generate(tools, launches, principals, trusted_keys) {
        Ok(words) => Ok(words),
        Err(faults) => {
            check(faults)?;
            Err(SourceError::whole_file("schema", "the schema cannot be generated").into())
        }
    }
}

fn schema(words: &Vocabulary) -> Result<Schema, SourceErrors> {
    match Schema::from_cedarschema_str(&words.text) {
        Ok((schema, _)) => Ok(schema),
        Err(error) => {
            let message = format!("the generated schema is not valid: {error}");
            Err(SourceError::whole_file("schema", message).into())
        }
    }
}

fn parsed(sources: &[PolicySource]) -> Result<Vec<PlacedPolicy<'_>>, SourceErrors> {
    match parse::parse(sources) {
        Ok(policies) => Ok(policies),
        Err(faults) => {
            check(faults)?;
            Err(SourceError::whole_file("policies", "the policies cannot be read").into())
        }
    }
}

fn set<'a>(
    policies: impl IntoIterator<Item = &'a PlacedPolicy<'a>>,
) -> Result<PolicySet, SourceErrors> {
    PolicySet::from_policies(policies.into_iter().map(|placed| placed.policy.clone())).map_err(
        |error| {
            SourceError::whole_file("policies", format!("the set cannot be built: {error}")).into()
        },
    )
}

fn check(mut faults: Vec<SourceError>) -> Result<(), SourceErrors> {
    faults.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    faults.truncate(FAULTS_COUNT_MAX);
    SourceErrors::check(faults)
}
