//! Fractions of the API as whole numbers of small parts, and back.

use crate::service::status::FieldViolation;

/// `value` in parts of which `parts` make one, to the nearest. Its own bounds are looked at by
/// whoever knows them.
pub(super) fn fraction(field: &str, value: f64, parts: u32) -> Result<u32, FieldViolation> {
    let scaled = (value * f64::from(parts)).round();
    if (0.0..=f64::from(u32::MAX)).contains(&scaled) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number within the bounds of the type"
        )]
        return Ok(scaled as u32);
    }
    let what = "must be a number that is not negative";
    Err(FieldViolation::bound(field, 0, value, what))
}

/// The number that so many parts are.
pub(super) fn share(value: u32, parts: u32) -> f64 {
    f64::from(value) / f64::from(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_parts_comes_back_and_what_is_none_is_refused() {
        for parts in [1_000, 1_000_000] {
            for value in [0, 1, 49, 50, 333, 500, 999, parts / 3, parts, 10 * parts] {
                assert_eq!(fraction("f", share(value, parts), parts), Ok(value));
            }
        }
        for bad in [-0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
            assert_eq!(fraction("f", bad, 1_000).unwrap_err().field, "f", "{bad}");
        }
    }
}
