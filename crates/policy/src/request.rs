//! A descriptor as a typed Cedar request. Values are built as what they are; nothing passes
//! through JSON, so no text can become another type.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;

use cedar_policy::{Context, Entities, Entity, EntityId, EntityUid, RestrictedExpression as Value};
use model::{ArgumentValue, Digest, RelativePath};
use worker::{
    CommandBoundary, CommandDescriptor, Descriptor, Filesystem, LaunchDescriptor, Limits,
    ProgramIdentity, WorkerRoot,
};

use crate::schema::{Subject, SubjectKind};

/// One question.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The `NAME` of `Agent::"NAME"`.
    pub principal: &'a str,
    pub descriptor: &'a Descriptor,
    /// A person's yes, where there is one.
    pub approval: Option<&'a ApprovalFact>,
    /// The digest of `descriptor`'s canonical form.
    pub call_sha256: Digest,
    /// The host's own facts: exactly the keys that were given at load.
    pub trusted: &'a BTreeMap<String, String>,
}

/// A person said yes to exactly this digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalFact {
    pub approved_sha256: Digest,
}

/// Why no Cedar request could be made. The call is refused.
#[derive(Debug)]
pub enum RequestError {
    /// The descriptor's kind is not the one that was declared at load.
    Kind {
        name: String,
    },
    /// The approval belongs to another call.
    OtherCallApproved {
        approved: Digest,
        call: Digest,
    },
    NumberTooLarge {
        what: &'static str,
        number: u64,
    },
    Address {
        argument: String,
        reason: &'static str,
    },
    Record(Box<cedar_policy::ExpressionConstructionError>),
    Context(Box<cedar_policy::ContextCreationError>),
    Resource(Box<dyn std::error::Error + Send + Sync>),
    /// The request contradicts the generated schema.
    Schema(Box<cedar_policy::RequestValidationError>),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { name } => {
                write!(
                    f,
                    "`{name}` was declared to the policies as another kind of work"
                )
            }
            Self::OtherCallApproved { approved, call } => {
                write!(
                    f,
                    "the approval is for call {approved}, and this is call {call}"
                )
            }
            Self::NumberTooLarge { what, number } => {
                write!(f, "`{what}` is {number}, more than a Cedar Long can hold")
            }
            Self::Address { argument, reason } => {
                write!(f, "the address in argument `{argument}` {reason}")
            }
            Self::Record(_) => f.write_str("a record of the request cannot be built"),
            Self::Context(_) => f.write_str("the request's context cannot be built"),
            Self::Resource(_) => f.write_str("the request's resource cannot be built"),
            Self::Schema(_) => f.write_str("the request does not fit the schema of the policies"),
        }
    }
}

impl std::error::Error for RequestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Record(error) => Some(error),
            Self::Context(error) => Some(error),
            Self::Resource(error) => Some(error.as_ref()),
            Self::Schema(error) => Some(error),
            Self::Kind { .. }
            | Self::OtherCallApproved { .. }
            | Self::NumberTooLarge { .. }
            | Self::Address { .. } => None,
        }
    }
}

/// The name under which the policies know `descriptor`: tool, executor or custom kind.
pub(crate) fn subject_name(descriptor: &Descriptor) -> &str {
    match descriptor {
        Descriptor::Command(command) => command.tool.as_str(),
        Descriptor::Launch(launch) => &launch.executor,
        Descriptor::Custom { custom_kind, .. } => custom_kind,
    }
}

/// Whether the work's own contract demands a person's approval.
pub(crate) fn demands_approval(descriptor: &Descriptor, subject: &Subject) -> bool {
    match descriptor {
        Descriptor::Command(command) => command.human_approval,
        Descriptor::Launch(launch) => launch.human_approval,
        Descriptor::Custom { .. } => subject.needs_approval,
    }
}

/// A request for Cedar, and the one entity that it speaks about.
pub(crate) struct CedarRequest {
    pub(crate) request: cedar_policy::Request,
    pub(crate) entities: Entities,
}

/// Builds the request for `subject`; `approved` is the digest that a person said yes to.
pub(crate) fn build(
    request: &Request<'_>,
    subject: &Subject,
    agent: &cedar_policy::EntityTypeName,
    approved: Option<Digest>,
    schema: &cedar_policy::Schema,
) -> Result<CedarRequest, RequestError> {
    let principal =
        EntityUid::from_type_name_and_id(agent.clone(), EntityId::new(request.principal));
    let context = context(request, subject, approved)?;
    let entities = resource(request, subject)?;
    let request = cedar_policy::Request::new(
        principal,
        subject.action.clone(),
        subject.resource.clone(),
        context,
        Some(schema),
    )
    .map_err(|error| RequestError::Schema(Box::new(error)))?;
    Ok(CedarRequest { request, entities })
}

fn context(
    request: &Request<'_>,
    subject: &Subject,
    approved: Option<Digest>,
) -> Result<Context, RequestError> {
    if let Some(approved) = approved.filter(|approved| *approved != request.call_sha256) {
        return Err(RequestError::OtherCallApproved {
            approved,
            call: request.call_sha256,
        });
    }
    let invocation = match (request.descriptor, subject.kind) {
        (Descriptor::Command(command), SubjectKind::Command) => vec![
            ("arguments", arguments(command)?),
            ("contract", contract(command)?),
            ("sensitive", sensitive(command)),
            ("resolved", command_resolved(command)?),
        ],
        (Descriptor::Launch(it), SubjectKind::Launch) => vec![
            ("launch", launch(it)?),
            (
                "resolved",
                record([("command_boundary", boundary(&it.boundary, &it.program)?)])?,
            ),
        ],
        (Descriptor::Custom { custom_kind, value }, SubjectKind::Custom) => vec![(
            "custom",
            record([
                ("kind", text(custom_kind)),
                ("sha256", digest(&value.digest())),
            ])?,
        )],
        _ => {
            return Err(RequestError::Kind {
                name: subject.name.clone(),
            });
        }
    };
    let trusted = request
        .trusted
        .iter()
        .map(|(key, value)| (key.as_str(), text(value)));
    let mut pairs = vec![
        ("trusted".to_owned(), record(trusted)?),
        (
            "has_human_approval".to_owned(),
            Value::new_bool(approved.is_some()),
        ),
        ("invocation".to_owned(), record(invocation)?),
    ];
    if let Some(approved) = approved {
        pairs.push(("approved_fingerprint".to_owned(), digest(&approved)));
    }
    Context::from_pairs(pairs).map_err(|error| RequestError::Context(Box::new(error)))
}

/// What has no manifest (a launch, custom work) has empty texts and the highest risk.
fn resource(request: &Request<'_>, subject: &Subject) -> Result<Entities, RequestError> {
    let (version, contract, risk) = match request.descriptor {
        Descriptor::Command(it) => (
            it.version.as_str(),
            it.contract_sha256.to_hex(),
            it.risk_tier.as_str(),
        ),
        Descriptor::Launch(_) | Descriptor::Custom { .. } => {
            ("", String::new(), model::RiskTier::Critical.as_str())
        }
    };
    let attributes = HashMap::from([
        ("name".to_owned(), text(&subject.name)),
        ("version".to_owned(), text(version)),
        ("contract_sha256".to_owned(), Value::new_string(contract)),
        ("fingerprint".to_owned(), digest(&request.call_sha256)),
        ("risk_tier".to_owned(), text(risk)),
    ]);
    let entity = Entity::new(subject.resource.clone(), attributes, HashSet::new())
        .map_err(|error| RequestError::Resource(Box::new(error)))?;
    Entities::from_entities([entity], None).map_err(|error| RequestError::Resource(Box::new(error)))
}

/// The manifest as the call itself has it.
fn contract(command: &CommandDescriptor) -> Result<Value, RequestError> {
    record([
        ("version", text(&command.version)),
        ("sha256", digest(&command.contract_sha256)),
    ])
}

fn arguments(command: &CommandDescriptor) -> Result<Value, RequestError> {
    let mut fields = Vec::with_capacity(command.arguments.len());
    for (name, value) in &command.arguments {
        let value = match value {
            ArgumentValue::Text(it) => text(it),
            ArgumentValue::Integer(it) => Value::new_long(*it),
            ArgumentValue::Decimal(it) => Value::new_decimal(it.to_string()),
            ArgumentValue::Boolean(it) => Value::new_bool(*it),
            ArgumentValue::IpAddress(it) => {
                check_address(it).map_err(|reason| RequestError::Address {
                    argument: name.to_string(),
                    reason,
                })?;
                Value::new_ip(it)
            }
        };
        fields.push((name.as_str(), value));
    }
    record(fields)
}

/// One address has one spelling: no IPv4-mapped form, no network with host bits.
fn check_address(written: &str) -> Result<(), &'static str> {
    let (address, prefix) = match written.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (written, None),
    };
    let address: IpAddr = address.parse().map_err(|_| "is not an IP address")?;
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            return Err("is an IPv4 address written as IPv6");
        }
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let Some(prefix) = prefix else { return Ok(()) };
    let length: u32 = prefix.parse().map_err(|_| "has no valid prefix length")?;
    if length > width || prefix != length.to_string() {
        return Err("has no valid prefix length");
    }
    if bits.checked_shl(length).unwrap_or(0) != 0 {
        return Err("is a network with host bits set");
    }
    Ok(())
}

/// `argv` and `tools` are sets: order and repetition are lost here, and kept in the digest.
fn launch(launch: &LaunchDescriptor) -> Result<Value, RequestError> {
    let argv = Value::new_set(launch.argv.iter().map(|argument| text(argument)));
    let tools = Value::new_set(launch.tools.iter().map(|tool| text(tool.as_str())));
    let mut fields = vec![
        ("agent", text(launch.agent.as_str())),
        ("executor", text(&launch.executor)),
        ("task", text(&launch.task)),
        ("argv", argv),
        ("tools", tools),
        ("tool_set_sha256", digest(&launch.tool_set_sha256)),
        ("max_calls", long("max_calls", launch.max_calls)?),
        ("lifetime_ms", long("lifetime_ms", launch.lifetime_ms)?),
    ];
    if let Some(shown) = &launch.shown {
        let file = [
            ("path", text(&shown.path)),
            ("sha256", digest(&shown.sha256)),
        ];
        fields.push(("shown", record(file)?));
    }
    if let Some(terms) = &launch.inference {
        let total = terms.max_total_output_tokens;
        fields.extend([
            ("provider", text(&terms.provider)),
            ("model", text(&terms.model)),
            ("base_url", text(&terms.base_url)),
            ("max_requests", long("max_requests", terms.max_requests)?),
            (
                "max_output_tokens",
                long("max_output_tokens", terms.max_output_tokens)?,
            ),
            (
                "max_total_output_tokens",
                long("max_total_output_tokens", total)?,
            ),
        ]);
    }
    record(fields)
}

/// The names of the sensitive arguments that the call has; their values are nobody's to see.
fn sensitive(command: &CommandDescriptor) -> Value {
    let names = command.sealed.arguments.keys();
    Value::new_set(names.map(|name| text(name.as_str())))
}

fn command_resolved(command: &CommandDescriptor) -> Result<Value, RequestError> {
    let mut fields = vec![(
        "command_boundary",
        boundary(&command.boundary, &command.program)?,
    )];
    if let Some(parser) = &command.parser {
        let parser = [
            ("program", program(&parser.program)?),
            ("limits", limits(&parser.boundary.limits)?),
        ];
        fields.push(("parser", record(parser)?));
    }
    record(fields)
}

fn program(program: &ProgramIdentity) -> Result<Value, RequestError> {
    let mut bound = vec![("path", text(program.path()))];
    match program {
        ProgramIdentity::Content(file) => bound.push(("sha256", digest(&file.sha256))),
        // The image's id stands for it.
        ProgramIdentity::Image { .. } => {}
    }
    record(bound)
}

fn boundary(boundary: &CommandBoundary, runs: &ProgramIdentity) -> Result<Value, RequestError> {
    let mut fields = vec![
        ("tier", text(boundary.tier.as_str())),
        ("network", text(boundary.network.as_str())),
        ("program", program(runs)?),
        ("working_dir", text(&boundary.working_dir)),
        ("limits", limits(&boundary.limits)?),
        ("filesystem", filesystem(&boundary.filesystem)?),
    ];
    match &boundary.root {
        WorkerRoot::Image { id } => fields.push(("image", text(id))),
        WorkerRoot::System { .. } | WorkerRoot::Directory { .. } => {}
    }
    record(fields)
}

fn limits(limits: &Limits) -> Result<Value, RequestError> {
    let mut fields = vec![("landlock", text(limits.landlock.as_str()))];
    for (name, limit) in limits.named() {
        let value = long(name, limit.value)?;
        let enforcement = text(limit.enforcement.as_str());
        fields.push((
            name,
            record([("value", value), ("enforcement", enforcement)])?,
        ));
    }
    record(fields)
}

fn filesystem(files: &Filesystem) -> Result<Value, RequestError> {
    let mut read = Vec::with_capacity(files.read.len());
    let mut parents = BTreeSet::new();
    for (key, grant) in &files.read {
        let mut fields = path(&grant.path);
        fields.push(("bytes", long("bytes", grant.bytes)?));
        fields.push(("sha256", digest(&grant.sha256)));
        read.push((key.as_str(), record(fields)?));
        parents.insert(grant.path.parent());
    }
    let mut create = Vec::with_capacity(files.create.len());
    let mut identity = None;
    for (key, grant) in &files.create {
        create.push((key.as_str(), record(path(&grant.path))?));
        identity = Some(&grant.parent);
    }
    let read_paths = files.read.values().map(|grant| text(grant.path.as_str()));
    let mut fields = vec![
        ("read", record(read)?),
        ("create", record(create)?),
        (
            "max_file_bytes",
            long("max_file_bytes", files.max_file_bytes)?,
        ),
        ("overwrite", Value::new_bool(false)),
        ("read_paths", Value::new_set(read_paths)),
        (
            "read_parents",
            Value::new_set(parents.into_iter().map(text)),
        ),
    ];
    if let Some(identity) = identity {
        let identity = [
            ("device", text(&identity.device)),
            ("inode", text(&identity.inode)),
        ];
        fields.push(("output_parent_identity", record(identity)?));
    }
    record(fields)
}

fn path(path: &RelativePath) -> Vec<(&'static str, Value)> {
    let mut fields = vec![
        ("path", text(path.as_str())),
        ("parent", text(path.parent())),
        ("name", text(path.name())),
    ];
    if let Some(extension) = path.extension() {
        fields.push(("extension", text(extension)));
    }
    fields
}

fn text(text: &str) -> Value {
    Value::new_string(text.to_owned())
}

fn digest(digest: &Digest) -> Value {
    Value::new_string(digest.to_hex())
}

fn long(what: &'static str, number: u64) -> Result<Value, RequestError> {
    let long = i64::try_from(number).map_err(|_| RequestError::NumberTooLarge { what, number })?;
    Ok(Value::new_long(long))
}

fn record<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Result<Value, RequestError> {
    Value::new_record(
        fields
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value)),
    )
    .map_err(|error| RequestError::Record(Box::new(error)))
}
