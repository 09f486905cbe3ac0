//! The only error of the native core: an invalid input, with a message that the caller can act on.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidInput(pub String);

impl fmt::Display for InvalidInput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for InvalidInput {}

pub type Result<T> = std::result::Result<T, InvalidInput>;

/// Shorthand for `Err(InvalidInput(..))`.
pub fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(InvalidInput(message.into()))
}
