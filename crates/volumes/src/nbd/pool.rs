//! The connections to an export: made, lost, and made again.
//!
//! # Locking
//!
//! The thread that finds them lost holds the pool's lock while it makes new ones, so all other threads wait.

use super::connection::{Connection, Failed, Request, SentRequest};
use super::device::{NbdDevice, Pool};
use super::protocol::*;
use drystone_blockdev::OpenMode;
use drystone_sync::clock::{self, Instant};
use drystone_sync::{Arc, thread};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// How long to wait before a lost connection is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait for a further connection: a server may promise several and not take as many.
const FURTHER_TIMEOUT: Duration = Duration::from_secs(5);
/// How many requests are under way on a connection when changes are sent again: servers carry out as many at once.
const SENT_AGAIN_AT_ONCE: usize = 16;

impl NbdDevice {
    /// Adds connections to a first one, where the server allows several, as many as it takes.
    pub(super) fn with_others(&self, first: Connection, deadline: Instant) -> Vec<Arc<Connection>> {
        let mut connections = vec![Arc::new(first)];
        let count = match self.export.has(HAS_MULTI_CONNECTION) {
            true => self.address.connections,
            false => 1,
        };
        while connections.len() < count {
            let left = deadline.duration_since(clock::now());
            match Connection::open(&self.address, left.min(FURTHER_TIMEOUT)) {
                Ok((connection, export)) if export == self.export => {
                    connections.push(Arc::new(connection));
                }
                // A name may stand for several servers.
                Ok(_) => {
                    tracing::warn!("{}: another connection leads to another export", self.name);
                    break;
                }
                Err(error) => {
                    let there = connections.len();
                    tracing::warn!("{}: no more than {there} connections: {error}", self.name);
                    break;
                }
            }
        }
        connections
    }

    /// Has a request carried out, on new connections if the old ones are lost.
    pub(super) fn call(&self, request: Request<'_>) -> io::Result<Vec<u8>> {
        let begun = clock::now();
        let mut first_loss: Option<Instant> = None;
        loop {
            let (connection, generation) = self.connection(begun, first_loss)?;
            let error = match connection.call(request) {
                Ok(data) => return Ok(data),
                Err(Failed::Refused(error)) => return Err(error),
                Err(Failed::Lost(error)) => error,
            };
            self.give_up(generation, &error);
            // A server may take every connection, and answer nothing.
            match first_loss {
                None => first_loss = Some(clock::now()),
                Some(first) if first.elapsed() > self.address.reconnect_timeout => {
                    return Err(self.fail(error));
                }
                Some(_) => {}
            }
        }
    }

    /// Ends all use of the server.
    pub(super) fn fail(&self, error: io::Error) -> io::Error {
        self.note_failure(&mut self.pool.lock(), error)
    }

    /// Ends all use of the server, or only that by requests which have begun by now if nothing is written: then
    /// nothing is lost.
    fn note_failure(&self, pool: &mut Pool, error: io::Error) -> io::Error {
        let told = same(&error);
        if pool.failed.is_none() {
            tracing::error!("{}: {error}", self.name);
        }
        if pool.failed.is_none() || self.mode == OpenMode::ReadOnly {
            pool.failed = Some((Arc::new(error), clock::now()));
        }
        told
    }

    /// A connection for one request.
    fn connection(
        &self,
        begun: Instant,
        first_loss: Option<Instant>,
    ) -> io::Result<(Arc<Connection>, u64)> {
        let pool = &mut *self.pool.lock();
        if let Some((error, at)) = &pool.failed
            && (self.mode == OpenMode::ReadWrite || begun <= *at)
        {
            return Err(same(error));
        }
        if pool.connections.is_empty() {
            // As long as an outage lasts, the requests of a reader don't wait for its end one after the other.
            let is_one_try = self.address.reconnect_timeout.is_zero() || pool.failed.is_some();
            // One try has the time of an answer.
            let limit = match is_one_try {
                true => self.address.answer_timeout,
                false => self.address.reconnect_timeout,
            };
            let deadline = first_loss.unwrap_or_else(clock::now) + limit;
            match self.reconnect(pool, deadline, is_one_try) {
                Ok(connections) => {
                    tracing::warn!("{}: connected again", self.name);
                    pool.connections = connections;
                    pool.failed = None;
                }
                Err(error) => return Err(self.note_failure(pool, error)),
            }
        }
        pool.turn = (pool.turn + 1) % pool.connections.len();
        Ok((Arc::clone(&pool.connections[pool.turn]), pool.generation))
    }

    /// Drops all connections: what one of them has lost, the others may not show.
    fn give_up(&self, generation: u64, error: &io::Error) {
        let mut pool = self.pool.lock();
        if pool.generation == generation {
            tracing::warn!("{}: connection lost: {error}", self.name);
            pool.generation += 1;
            let connections = std::mem::take(&mut pool.connections);
            pool.lose(connections);
        }
    }

    /// Makes new connections before the deadline, and brings the server up to date.
    fn reconnect(
        &self,
        pool: &mut Pool,
        deadline: Instant,
        is_one_try: bool,
    ) -> io::Result<Vec<Arc<Connection>>> {
        let start = clock::now();
        loop {
            let error = match self.reconnect_once(pool, deadline) {
                Ok(connections) => return Ok(connections),
                // Another disk, or one that refuses what it took before.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
                Err(error) => error,
            };
            let left = deadline.duration_since(clock::now());
            if is_one_try || left < RETRY_INTERVAL * 2 {
                let seconds = start.elapsed().as_secs_f64();
                let problem = format!("no connection to the server for {seconds:.0} s: {error}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }

    fn reconnect_once(
        &self,
        pool: &mut Pool,
        deadline: Instant,
    ) -> io::Result<Vec<Arc<Connection>>> {
        // What is carried out later would replace what is sent from here on.
        if pool.late.iter().any(|connection| !connection.is_over_by(deadline)) {
            let problem = "the server may still carry out changes that it hasn't answered in time";
            return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
        }
        pool.late.clear();
        let left = deadline.duration_since(clock::now());
        // A server may be up before its exports are: what it says now isn't its last word.
        let opened = Connection::open(&self.address, left.min(self.address.answer_timeout));
        let (first, export) = opened.map_err(|error| io::Error::other(error.to_string()))?;
        if export != self.export {
            return Err(wrong("the server comes back with an export of another size or kind"));
        }
        let connections = self.with_others(first, deadline);
        match self.send_again(&connections, deadline) {
            Ok(()) => Ok(connections),
            Err(error) => {
                pool.lose(connections);
                Err(error)
            }
        }
    }

    /// Makes all changes again that the server may have lost.
    fn send_again(&self, connections: &[Arc<Connection>], deadline: Instant) -> io::Result<()> {
        let changes = self.log.lock().all();
        let mut sent = SentChanges { connections, deadline, count: 0, under_way: VecDeque::new() };
        for (offset, change) in &changes {
            self.send_change(*offset, change, 0, |request| sent.add(request))?;
        }
        sent.finish(0)
    }
}

impl Pool {
    /// Gives connections up.
    fn lose(&mut self, connections: Vec<Arc<Connection>>) {
        connections.iter().for_each(|connection| connection.lose("given up with the others"));
        self.late.extend(connections);
    }
}

/// Changes that are made again, side by side unless they overlap.
struct SentChanges<'c> {
    connections: &'c [Arc<Connection>],
    deadline: Instant,
    /// How many were sent.
    count: usize,
    under_way: VecDeque<(Range<u64>, &'c Connection, SentRequest)>,
}

impl<'c> SentChanges<'c> {
    fn add(&mut self, request: Request<'_>) -> io::Result<()> {
        let range = request.offset..request.offset + u64::from(request.length);
        let overlaps =
            |(other, ..): &(Range<u64>, _, _)| other.start < range.end && range.start < other.end;
        let left = match self.under_way.iter().any(overlaps) {
            true => 0,
            false => SENT_AGAIN_AT_ONCE * self.connections.len() - 1,
        };
        self.finish(left)?;
        let connection: &'c Connection = &self.connections[self.count % self.connections.len()];
        self.count += 1;
        let sent = connection.begin(request, Some(self.deadline)).map_err(not_made_again)?;
        self.under_way.push_back((range, connection, sent));
        Ok(())
    }

    /// Waits until no more than so many are under way.
    fn finish(&mut self, left: usize) -> io::Result<()> {
        while self.under_way.len() > left
            && let Some((_, connection, sent)) = self.under_way.pop_front()
        {
            connection.finish(&sent, Some(self.deadline)).map_err(not_made_again)?;
        }
        Ok(())
    }
}

fn not_made_again(failed: Failed) -> io::Error {
    match failed {
        Failed::Refused(error) => wrong(&format!("unflushed data is lost: {error}")),
        Failed::Lost(error) => error,
    }
}

/// An error once more, for another caller.
fn same(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
