//! Soft state of groups: members, assignment, leases, credit.

/// Soft state of all groups.
#[derive(Debug, Default)]
pub struct Sessions {}
