//! Calls that wait for a plugin: bounded, and fair between callers.
//!
//! Callers take turns. Where the queue is full, the one that fills it most gives way: its newest call is put out, so
//! that no caller can keep others from a place.

use std::collections::{HashMap, VecDeque};

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capacity {
    pub(super) calls: usize,
    pub(super) bytes: usize,
}

/// Numbers of calls that wait, by caller.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lines: HashMap<u64, Line>,
    /// Callers with calls here, in the order of their turns.
    turns: VecDeque<u64>,
    calls: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Line {
    calls: VecDeque<(u64, usize)>,
    bytes: usize,
}

/// What became of a call that came to the queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It waits; these calls of another caller had to go for it.
    Waits { put_out: Vec<u64> },
    /// There is no room for it.
    Full,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.calls == 0
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.calls
    }

    /// Adds a call of `bytes` at the end of its caller's line.
    pub(super) fn push(&mut self, caller: u64, call: u64, bytes: usize, capacity: Capacity) -> Place {
        let mut put_out = Vec::new();
        while self.calls + 1 > capacity.calls || self.bytes + bytes > capacity.bytes {
            let too_many = self.calls + 1 > capacity.calls;
            let own = self.lines.get(&caller).map_or((0, 0), |line| (line.calls.len(), line.bytes));
            let greediest = self
                .lines
                .iter()
                .map(|(caller, line)| ((line.calls.len(), line.bytes), *caller))
                .max_by_key(|((calls, bytes), _)| if too_many { *calls } else { *bytes });
            let gives_way = greediest.filter(|((calls, held), other)| {
                *other != caller && if too_many { *calls > own.0 + 1 } else { *held > own.1 + bytes }
            });
            let Some((_, other)) = gives_way else {
                // It did not help: back to their places.
                for (caller, call, bytes) in put_out.into_iter().rev() {
                    self.add(caller, call, bytes);
                }
                return Place::Full;
            };
            let Some((call, bytes)) = self.pop_newest(other) else { return Place::Full };
            put_out.push((other, call, bytes));
        }
        self.add(caller, call, bytes);
        Place::Waits { put_out: put_out.into_iter().map(|(_, call, _)| call).collect() }
    }

    fn add(&mut self, caller: u64, call: u64, bytes: usize) {
        let line = self.lines.entry(caller).or_default();
        if line.calls.is_empty() {
            self.turns.push_back(caller);
        }
        line.calls.push_back((call, bytes));
        line.bytes += bytes;
        self.calls += 1;
        self.bytes += bytes;
    }

    /// The next call, of the caller whose turn it is.
    pub(super) fn pop(&mut self) -> Option<u64> {
        let caller = self.turns.pop_front()?;
        let line = self.lines.get_mut(&caller)?;
        let (call, bytes) = line.calls.pop_front()?;
        line.bytes -= bytes;
        if line.calls.is_empty() {
            self.lines.remove(&caller);
        } else {
            self.turns.push_back(caller);
        }
        self.calls -= 1;
        self.bytes -= bytes;
        Some(call)
    }

    /// Takes a call out.
    pub(super) fn remove(&mut self, caller: u64, call: u64) {
        let Some(line) = self.lines.get_mut(&caller) else { return };
        let Some(at) = line.calls.iter().position(|(number, _)| *number == call) else { return };
        if let Some((_, bytes)) = line.calls.remove(at) {
            line.bytes -= bytes;
            self.left(caller, bytes);
        }
    }

    fn pop_newest(&mut self, caller: u64) -> Option<(u64, usize)> {
        let line = self.lines.get_mut(&caller)?;
        let (call, bytes) = line.calls.pop_back()?;
        line.bytes -= bytes;
        self.left(caller, bytes);
        Some((call, bytes))
    }

    fn left(&mut self, caller: u64, bytes: usize) {
        self.calls -= 1;
        self.bytes -= bytes;
        if self.lines.get(&caller).is_some_and(|line| line.calls.is_empty()) {
            self.lines.remove(&caller);
            self.turns.retain(|other| *other != caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Capacity = Capacity { calls: 4, bytes: 100 };

    fn waits(queue: &mut Queue, caller: u64, call: u64, bytes: usize) -> Vec<u64> {
        match queue.push(caller, call, bytes, CAPACITY) {
            Place::Waits { put_out } => put_out,
            Place::Full => panic!("full"),
        }
    }

    #[test]
    fn callers_take_turns() {
        let mut queue = Queue::default();
        for (caller, call) in [(1, 10), (1, 11), (1, 12), (2, 20)] {
            waits(&mut queue, caller, call, 1);
        }
        let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [10, 20, 11, 12]);
        assert!(queue.is_empty() && queue.bytes == 0 && queue.lines.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn the_caller_that_fills_the_queue_gives_way_to_a_newcomer() {
        let mut queue = Queue::default();
        for call in 10..14 {
            waits(&mut queue, 1, call, 1);
        }
        assert_eq!(queue.push(1, 14, 1, CAPACITY), Place::Full, "it has had its share");
        assert_eq!(waits(&mut queue, 2, 20, 1), [13], "the newest goes");
        assert_eq!(waits(&mut queue, 2, 21, 1), [12]);
        assert_eq!(queue.push(2, 22, 1, CAPACITY), Place::Full, "both have half");
        assert_eq!(queue.len(), 4);
    }

    #[test]
    fn bytes_are_bounded_as_calls_are() {
        let mut queue = Queue::default();
        waits(&mut queue, 1, 10, 60);
        waits(&mut queue, 1, 11, 40);
        assert_eq!(queue.push(1, 12, 1, CAPACITY), Place::Full);
        assert_eq!(waits(&mut queue, 2, 20, 30), [11]);
        assert_eq!(queue.push(3, 30, 101, CAPACITY), Place::Full, "more than everybody together");
        assert_eq!(queue.bytes, 90);
    }

    #[test]
    fn nobody_loses_a_place_where_that_does_not_help() {
        let mut queue = Queue::default();
        waits(&mut queue, 1, 10, 30);
        waits(&mut queue, 1, 11, 30);
        waits(&mut queue, 2, 20, 40);
        assert_eq!(queue.push(3, 30, 50, CAPACITY), Place::Full);
        let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [10, 20, 11]);
    }

    #[test]
    fn a_call_that_is_taken_out_leaves_its_place() {
        let mut queue = Queue::default();
        waits(&mut queue, 1, 10, 50);
        waits(&mut queue, 2, 20, 50);
        queue.remove(1, 10);
        queue.remove(1, 10);
        queue.remove(9, 9);
        assert_eq!((queue.len(), queue.bytes), (1, 50));
        assert_eq!((queue.pop(), queue.pop()), (Some(20), None));
    }
}
