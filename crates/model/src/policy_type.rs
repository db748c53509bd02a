/// How policy sees an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyType {
    Text,
    Integer,
    Decimal,
    Boolean,
    /// Text that Cedar's `ipaddr` accepts.
    IpAddress,
}

impl PolicyType {
    /// Its name in a Cedar schema.
    #[must_use]
    pub const fn as_cedar(self) -> &'static str {
        match self {
            Self::Text => "String",
            Self::Integer => "Long",
            Self::Decimal => "decimal",
            Self::Boolean => "Bool",
            Self::IpAddress => "ipaddr",
        }
    }
}
