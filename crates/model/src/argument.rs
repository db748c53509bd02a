//! A checked argument's value, typed as policy sees it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One argument after its manifest accepted it. Integers travel as text: they can pass 2^53.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", content = "value")]
pub enum ArgumentValue {
    Text(String),
    Integer(#[serde(with = "as_text")] i64),
    Decimal(Decimal),
    Boolean(bool),
    /// An address or network that Cedar's `ipaddr` accepts.
    IpAddress(String),
}

impl fmt::Display for ArgumentValue {
    /// The text that stands in argv.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) | Self::IpAddress(text) => f.write_str(text),
            Self::Integer(integer) => integer.fmt(f),
            Self::Decimal(decimal) => decimal.fmt(f),
            Self::Boolean(boolean) => boolean.fmt(f),
        }
    }
}

/// A decimal number with at most four fractional digits, as Cedar's `decimal` holds it: a
/// multiple of 1/10000 in an `i64`. Prints in its shortest form with at least one such digit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal(i64);

/// Why a text is not such a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecimalError {
    Syntax,
    FractionTooLong { digits: usize },
    OutOfRange,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str("a number is written like `-12.5`, without an exponent"),
            Self::FractionTooLong { digits } => {
                write!(
                    f,
                    "the number has {digits} fractional digits, more than the 4 allowed"
                )
            }
            Self::OutOfRange => {
                f.write_str("the number is outside -922337203685477.5808 to 922337203685477.5807")
            }
        }
    }
}

impl std::error::Error for DecimalError {}

const SCALE: i64 = 10_000;
const FRACTION_DIGITS_MAX: usize = 4;

impl Decimal {
    /// The number times 10,000.
    #[must_use]
    pub const fn scaled(self) -> i64 {
        self.0
    }
}

impl std::str::FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = match digits.split_once('.') {
            Some((_, "")) => return Err(DecimalError::Syntax),
            Some(parts) => parts,
            None => (digits, ""),
        };
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let leading_zero = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || leading_zero || !all_digits(whole) || !all_digits(fraction) {
            return Err(DecimalError::Syntax);
        }
        if fraction.len() > FRACTION_DIGITS_MAX {
            return Err(DecimalError::FractionTooLong {
                digits: fraction.len(),
            });
        }
        let padded = format!("{whole}{fraction:0<FRACTION_DIGITS_MAX$}");
        let signed = if negative {
            format!("-{padded}")
        } else {
            padded
        };
        signed
            .parse()
            .map(Self)
            .map_err(|_| DecimalError::OutOfRange)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let scale = SCALE.unsigned_abs();
        let (whole, fraction) = (self.0.unsigned_abs() / scale, self.0.unsigned_abs() % scale);
        let fraction = format!("{fraction:0>FRACTION_DIGITS_MAX$}");
        let shown = fraction.trim_end_matches('0');
        write!(
            f,
            "{sign}{whole}.{}",
            if shown.is_empty() { "0" } else { shown }
        )
    }
}

impl Serialize for Decimal {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_have_at_most_four_fractional_digits() {
        assert_eq!("1.2500".parse::<Decimal>().unwrap().to_string(), "1.25");
        assert_eq!("-0.5".parse::<Decimal>().unwrap().scaled(), -5000);
        assert_eq!("3".parse::<Decimal>().unwrap().to_string(), "3.0");
        assert_eq!(
            "1.55555".parse::<Decimal>(),
            Err(DecimalError::FractionTooLong { digits: 5 })
        );
        assert_eq!(
            "922337203685477.5808".parse::<Decimal>(),
            Err(DecimalError::OutOfRange)
        );
        assert!("922337203685477.5807".parse::<Decimal>().is_ok());
        assert!("-922337203685477.5808".parse::<Decimal>().is_ok());
        for bad in [
            "", "-", ".5", "1.", "01", "1e3", "+1", " 1", "1,5", "٣", "NaN", "--1",
        ] {
            assert_eq!(bad.parse::<Decimal>(), Err(DecimalError::Syntax), "{bad:?}");
        }
    }

    #[test]
    fn integers_are_recorded_as_text() {
        let value = ArgumentValue::Integer(i64::MAX);
        let json = serde_json::to_string(&value).unwrap();
        assert_eq!(json, r#"{"type":"integer","value":"9223372036854775807"}"#);
        assert_eq!(serde_json::from_str::<ArgumentValue>(&json).unwrap(), value);
    }

    proptest! {
        #[test]
        fn a_printed_decimal_parses_to_itself(scaled in any::<i64>()) {
            let decimal = Decimal(scaled);
            prop_assert_eq!(decimal.to_string().parse(), Ok(decimal));
        }
    }
}
