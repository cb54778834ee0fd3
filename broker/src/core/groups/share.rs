//! The share of hand-outs that goes to due retries.

/// What one kind of records is owed by the other. It grows only while both have their turn, so that
/// what was given out while there was one kind alone is not made up for.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// In thousandths of a record; from 0 on retries are owed.
    owed: i64,
}

impl Share {
    /// Whether retries come first, where there are both: they have had less than their share.
    pub(super) fn favours_retries(&self) -> bool {
        self.owed >= 0
    }

    /// Records were given out. Those of the kind that did not come first were all that there was.
    pub(super) fn gave(&mut self, records: u64, is_retry: bool, share_permille: u32) {
        let share = i64::from(share_permille);
        let records = i64::try_from(records).unwrap_or(i64::MAX);
        match (is_retry, self.favours_retries()) {
            (true, true) => self.owed -= records * (1_000 - share),
            (false, false) => self.owed += records * share,
            (true, false) | (false, true) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_get_their_share_whatever_the_sizes_of_hand_outs() {
        for (fresh, retry) in [(1, 1), (500, 1), (1, 20), (500, 500)] {
            let mut share = Share::default();
            let (mut fresh_sum, mut retry_sum) = (0_u64, 0_u64);
            for _ in 0..100_000 {
                if share.favours_retries() {
                    share.gave(retry, true, 250);
                    retry_sum += retry;
                } else {
                    share.gave(fresh, false, 250);
                    fresh_sum += fresh;
                }
            }
            let permille = retry_sum * 1_000 / (fresh_sum + retry_sum);
            assert!(
                (240..500).contains(&permille),
                "{fresh}/{retry}: {permille}"
            );
        }
    }

    #[test]
    fn what_was_given_out_while_there_was_one_kind_alone_is_not_made_up_for() {
        for alone in [false, true] {
            let mut share = Share::default();
            for _ in 0..10_000 {
                share.gave(100, alone, 250);
            }
            let mut in_a_row = 0;
            while share.favours_retries() != alone {
                share.gave(100, !alone, 250);
                in_a_row += 100;
            }
            assert!(in_a_row <= 400, "{in_a_row}");
        }
    }
}
