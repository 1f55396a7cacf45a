//! What one call has brought and its reader has not taken yet.

use std::collections::VecDeque;
use std::task::Waker;

use plugind_protocol::Error;
use serde_json::value::RawValue;

use super::fault;

/// How many steps of progress are kept for a reader who comes late: the newest.
const PROGRESS_MAX: usize = 16;

/// What comes of a call: any number of steps and parts, then its end.
#[derive(Debug)]
pub enum Event {
    /// How far the work is, in the plugin's own words. Steps may be left out.
    Progress(Box<RawValue>),
    /// The next part of the answer. None is left out.
    Chunk(Box<RawValue>),
    /// The result, or why there is none. Nothing follows.
    Done(Result<Box<RawValue>, Error>),
}

/// How much of a call its caller wants to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) progress: bool,
    /// How many chunks may be on their way and waiting.
    pub(super) window: u32,
}

/// The events of one call.
#[derive(Debug)]
pub(super) struct Events {
    wanted: Wanted,
    waiting: VecDeque<Event>,
    progress: usize,
    /// What the supervisor may still send.
    credit: u32,
    /// What was taken, and not given back as credit yet.
    taken: u32,
    next_seq: u64,
    done: bool,
    waker: Option<Waker>,
}

impl Events {
    pub(super) fn new(wanted: Wanted) -> Events {
        Events {
            wanted,
            waiting: VecDeque::new(),
            progress: 0,
            credit: wanted.window,
            taken: 0,
            next_seq: 0,
            done: false,
            waker: None,
        }
    }

    /// Takes in progress; a late reader gets the newest.
    pub(super) fn progress(&mut self, data: &RawValue) -> Option<Waker> {
        if self.done || !self.wanted.progress {
            return None;
        }
        if self.progress == PROGRESS_MAX {
            let oldest = self.waiting.iter().position(|event| matches!(event, Event::Progress(_)));
            oldest.and_then(|oldest| self.waiting.remove(oldest));
        } else {
            self.progress += 1;
        }
        self.push(Event::Progress(data.to_owned()))
    }

    /// Takes in a chunk; one that is not allowed now ends the call, since what its caller sees would have a hole.
    pub(super) fn chunk(&mut self, seq: u64, data: &RawValue) -> Result<Option<Waker>, Error> {
        if self.done {
            return Ok(None);
        }
        if seq != self.next_seq {
            return Err(fault::broken_stream(&format!("chunk {seq} came where {} was due", self.next_seq)));
        }
        if self.credit == 0 {
            return Err(fault::broken_stream("a chunk came without credit"));
        }
        self.next_seq += 1;
        self.credit -= 1;
        Ok(self.push(Event::Chunk(data.to_owned())))
    }

    /// The end of the call; what came before stays for its reader.
    pub(super) fn done(&mut self, result: Result<Box<RawValue>, Error>) -> Option<Waker> {
        if self.done {
            return None;
        }
        self.done = true;
        self.push(Event::Done(result))
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// The next event, and the credit to give back for what was taken.
    pub(super) fn take(&mut self) -> Option<(Event, u32)> {
        let event = self.waiting.pop_front()?;
        let mut back = 0;
        match event {
            Event::Progress(_) => self.progress -= 1,
            Event::Chunk(_) => {
                self.taken += 1;
                // Not one by one: half a window keeps the stream moving with a fraction of the messages.
                if self.taken >= self.wanted.window.div_ceil(2) && !self.done {
                    back = std::mem::take(&mut self.taken);
                    self.credit += back;
                }
            }
            Event::Done(_) => {}
        }
        Some((event, back))
    }

    /// Who is to be woken by the next event.
    pub(super) fn wake(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn push(&mut self, event: Event) -> Option<Waker> {
        self.waiting.push_back(event);
        self.waker.take()
    }
}
