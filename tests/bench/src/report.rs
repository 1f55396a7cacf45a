//! What a run comes to: `target/bench/relay.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::{Machine, date, load};

/// The raw number that says how much else ran when the run began.
pub const LOAD: &str = "load_average_before";

/// A run's numbers. The table's own are members of the object itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// What was measured.
    pub commit: String,
    /// When.
    pub date: String,
    /// Where.
    pub machine: Machine,
    /// Whether it was a short run, whose numbers are rough.
    pub quick: bool,
    /// How the cost of a call grows.
    pub growth: Vec<Growth>,
    /// The rows that could not be measured, and why.
    pub skipped: BTreeMap<String, String>,
    /// What the ratios were made of: microseconds, calls and bytes per second, KiB.
    pub raw: BTreeMap<String, f64>,
    /// The rows of the table.
    #[serde(flatten)]
    pub values: BTreeMap<String, f64>,
}

/// One size of the system.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Growth {
    /// Plugins that run.
    pub plugins: usize,
    /// Callers that call at once, each one call at a time.
    pub callers: usize,
    /// What the middle call takes, microseconds.
    pub p50_us: f64,
    /// All callers' calls together.
    pub calls_per_second: f64,
}

impl Report {
    /// Nothing is measured yet.
    #[must_use]
    pub fn new(commit: String, quick: bool) -> Report {
        let mut report = Report {
            commit,
            date: date(),
            machine: Machine::this(),
            quick,
            growth: Vec::new(),
            skipped: BTreeMap::new(),
            raw: BTreeMap::new(),
            values: BTreeMap::new(),
        };
        report.raw(LOAD, load());
        report
    }

    /// A row of the table.
    pub fn value(&mut self, key: &str, value: f64) {
        insert(&mut self.values, key, value);
    }

    /// What is behind it.
    pub fn raw(&mut self, key: &str, value: f64) {
        insert(&mut self.raw, key, value);
    }

    /// A ratio of ours to the floor's, with both.
    pub fn ratio(&mut self, key: &str, what: &str, ours: f64, floor: f64) {
        self.value(key, ours / floor);
        self.pair(what, ours, floor);
    }

    /// What a ratio is made of.
    pub fn pair(&mut self, what: &str, ours: f64, floor: f64) {
        self.raw(&format!("{what}_ours"), ours);
        self.raw(&format!("{what}_floor"), floor);
    }
}

/// Four digits that mean something. What is no number has no place in JSON.
fn insert(numbers: &mut BTreeMap<String, f64>, key: &str, value: f64) {
    if value.is_finite() {
        numbers.insert(key.to_owned(), format!("{value:.3e}").parse().unwrap_or(value));
    }
}
