//! Bounds of a policy set and of what it says. Unit and bound stand last in each name.

/// Largest policy file.
pub const POLICY_FILE_BYTES_MAX: usize = 256 << 10;
/// Most policies of one set.
pub const POLICIES_COUNT_MAX: usize = 1024;
/// Most tools and launches of one set.
pub const ACTIONS_COUNT_MAX: usize = 512;
/// Longest `@id`.
pub const POLICY_ID_BYTES_MAX: usize = 128;
/// Longest `@reason` and `@advice`.
pub const ANNOTATION_BYTES_MAX: usize = 512;
/// Deepest nesting of brackets in a policy.
pub const NESTING_DEPTH_MAX: usize = 64;
/// Most words, texts and punctuation marks of a policy: two of them (`+ 1`, `. name`) can be one
/// more level of its syntax tree, on which Cedar recurses.
pub const POLICY_TOKENS_MAX: usize = 3072;
/// Longest name of a trusted context value.
pub const TRUSTED_KEY_BYTES_MAX: usize = 64;
/// Longest `[tool.cedar]` resource or action.
pub const CEDAR_NAME_BYTES_MAX: usize = 128;
/// Most policies, and most errors, that a verdict lists.
pub const NOTES_COUNT_MAX: usize = 64;
/// Longest error that a verdict lists; the rest is cut.
pub const ERROR_BYTES_MAX: usize = 1024;
/// Most permits that a refusal names as close.
pub const CLOSE_COUNT_MAX: usize = 5;
/// Most faults that a load reports.
pub const FAULTS_COUNT_MAX: usize = 100;
