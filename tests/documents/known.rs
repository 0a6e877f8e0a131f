//! Known exceptions to the architecture rules. These lists are exact, and only get shorter.

/// Type names that occur more than once in a crate.
pub(crate) const TWINS: &[&str] = &[];

/// Files of one crate that import each other.
pub(crate) const CIRCLES: &[&str] = &[];

/// Rooms of one crate whose files import each other.
pub(crate) const ROOM_CIRCLES: &[&str] = &[];
