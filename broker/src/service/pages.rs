//! Lists in pages: sorted by name, and a page goes on behind the last name of the one before.

use super::checks;
use super::status::FieldViolation;

const PAGE_SIZE: (u32, u32) = (100, 1000);

/// Which page of a list is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Page {
    /// Most entries.
    pub(super) size: usize,
    /// Last name of the page before; none for the first page.
    pub(super) after: Option<String>,
}

impl Page {
    /// Reads the two fields of a list request.
    pub(super) fn read(page_size: i32, page_token: &str) -> Result<Self, FieldViolation> {
        let size = checks::count("page_size", page_size, PAGE_SIZE)?;
        let after = match page_token.strip_prefix(TOKEN_PREFIX) {
            Some(name) => Some(name.to_owned()),
            None if page_token.is_empty() => None,
            None => return Err(FieldViolation::new("page_token", "is none of a page")),
        };
        Ok(Self {
            size: usize::try_from(size).unwrap_or(usize::MAX),
            after,
        })
    }

    /// Whether a name lies behind the page before.
    pub(super) fn is_next(&self, name: &str) -> bool {
        self.after.as_deref().is_none_or(|after| name > after)
    }
}

/// Tells a token from a name that was given as one.
const TOKEN_PREFIX: &str = "1:";

/// The token of the page that follows the one that ends with `last`.
pub(super) fn token_after(last: &str) -> String {
    format!("{TOKEN_PREFIX}{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_behind_the_last_name_of_the_one_before() {
        let first = Page::read(0, "").unwrap();
        assert_eq!(
            first,
            Page {
                size: 100,
                after: None
            }
        );
        assert!(first.is_next("a"));
        let second = Page::read(2, &token_after("b")).unwrap();
        assert!(!second.is_next("b") && second.is_next("ba"));
    }

    #[test]
    fn sizes_out_of_bounds_and_foreign_tokens_are_refused() {
        assert!(Page::read(1001, "").is_err());
        assert!(Page::read(-1, "").is_err());
        assert!(Page::read(1, "orders").is_err());
    }
}
