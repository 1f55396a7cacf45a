//! What a call may send before its answer: chunks as far as the caller gave credit, progress as far as it is not too fast.

use std::time::Duration;

use tokio::time::Instant;

/// Chunks that a plugin may have on their way at most, whatever credit the caller gave: what is bounded here is our
/// memory.
pub(super) const WINDOW: u32 = 16;

/// Words of progress of one call: this many at once, and one more every [`PROGRESS_EVERY`].
const PROGRESS_BURST: u32 = 16;
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// One call's chunks.
#[derive(Debug, Default)]
pub(super) struct Credit {
    /// What the caller gave and the plugin has not got yet.
    kept: u64,
    /// What the plugin has got and not used yet.
    lent: u32,
    /// The number of the next chunk.
    next: u64,
}

/// Why a chunk is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Misstep {
    NoCredit,
    WrongNumber { expected: u64 },
}

impl Credit {
    /// A call whose caller takes so many chunks; what the plugin gets with the call.
    pub(super) fn new(given: u64) -> (Credit, u32) {
        let mut credit = Credit { kept: given, ..Credit::default() };
        let lent = credit.lend();
        (credit, lent)
    }

    /// The caller takes more.
    pub(super) fn give(&mut self, more: u64) {
        self.kept = self.kept.saturating_add(more);
    }

    /// What is worth telling the plugin now, if the caller has room for it: half a window, or the first chunk that it
    /// may send at all.
    pub(super) fn due(&mut self) -> Option<u32> {
        let due = self.lent <= WINDOW / 2 && self.kept > 0;
        due.then(|| self.lend())
    }

    fn lend(&mut self) -> u32 {
        let more = u32::try_from(self.kept).unwrap_or(WINDOW).min(WINDOW - self.lent);
        self.kept -= u64::from(more);
        self.lent += more;
        more
    }

    /// The plugin sent a chunk.
    pub(super) fn take(&mut self, seq: u64) -> Result<(), Misstep> {
        if self.lent == 0 {
            return Err(Misstep::NoCredit);
        }
        if seq != self.next {
            return Err(Misstep::WrongNumber { expected: self.next });
        }
        self.lent -= 1;
        self.next += 1;
        Ok(())
    }
}

/// One call's progress; a token bucket.
#[derive(Debug, Default)]
pub(super) struct Pace {
    spent: u32,
    since: Option<Instant>,
}

impl Pace {
    /// Whether one more word may pass.
    pub(super) fn allows(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let steps = now.saturating_duration_since(since).as_nanos() / PROGRESS_EVERY.as_nanos();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        if steps > 0 {
            self.spent = self.spent.saturating_sub(steps);
            self.since = Some(now);
        }
        let allowed = self.spent < PROGRESS_BURST;
        self.spent += u32::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_never_has_more_than_a_window_however_much_is_given() {
        let (mut credit, lent) = Credit::new(1_000_000);
        assert_eq!(lent, WINDOW);
        assert_eq!(credit.due(), None, "the window is open");
        for seq in 0..u64::from(WINDOW) {
            assert_eq!(credit.take(seq), Ok(()));
        }
        assert_eq!(credit.take(16), Err(Misstep::NoCredit));
        assert_eq!(credit.due(), Some(WINDOW));
    }

    #[test]
    fn small_credit_is_passed_on_at_once() {
        let (mut credit, lent) = Credit::new(0);
        assert_eq!((lent, credit.due()), (0, None));
        credit.give(1);
        assert_eq!(credit.due(), Some(1));
        assert_eq!(credit.take(5), Err(Misstep::WrongNumber { expected: 0 }));
        assert_eq!(credit.take(0), Ok(()));
        assert_eq!(credit.take(0), Err(Misstep::NoCredit));
        credit.give(u64::MAX);
        credit.give(u64::MAX);
        assert_eq!(credit.due(), Some(WINDOW));
    }

    #[tokio::test(start_paused = true)]
    async fn progress_passes_in_bursts_and_then_twenty_times_a_second() {
        let mut pace = Pace::default();
        let passed = (0..1000).filter(|_| pace.allows(Instant::now())).count();
        assert_eq!(passed, PROGRESS_BURST as usize);
        tokio::time::advance(Duration::from_millis(100)).await;
        let passed = (0..1000).filter(|_| pace.allows(Instant::now())).count();
        assert_eq!(passed, 2);
    }
}
