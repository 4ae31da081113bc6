//! The connections to an export: made, lost, and made again.
//!
//! # Locking
//!
//! The thread that finds them lost holds the pool's lock while it makes new ones, so all other threads wait.

use super::connection::{Connection, Failed, Request};
use super::device::NbdDevice;
use super::protocol::*;
use drystone_sync::{Arc, clock, thread};
use std::io;
use std::time::Duration;

/// How long to wait before a lost connection is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait for a further connection: a server may promise several and not take as many.
const FURTHER_TIMEOUT: Duration = Duration::from_secs(5);

impl NbdDevice {
    /// Adds connections to a first one, where the server allows several, as many as it takes.
    pub(super) fn with_others(&self, first: Connection, timeout: Duration) -> Vec<Arc<Connection>> {
        let mut connections = vec![Arc::new(first)];
        let count = match self.export.has(HAS_MULTI_CONNECTION) {
            true => self.address.connections,
            false => 1,
        };
        while connections.len() < count {
            match Connection::open(&self.address, timeout.min(FURTHER_TIMEOUT)) {
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
        let mut first_loss: Option<clock::Instant> = None;
        loop {
            let (connection, generation) = self.connection()?;
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
        let told = io::Error::new(error.kind(), error.to_string());
        let mut pool = self.pool.lock();
        if pool.failed.is_none() {
            tracing::error!("{}: {error}", self.name);
            pool.failed = Some(Arc::new(error));
        }
        told
    }

    /// A connection for one request.
    fn connection(&self) -> io::Result<(Arc<Connection>, u64)> {
        let mut pool = self.pool.lock();
        if let Some(error) = &pool.failed {
            return Err(io::Error::new(error.kind(), error.to_string()));
        }
        if pool.connections.is_empty() {
            match self.reconnect() {
                Ok(connections) => {
                    tracing::warn!("{}: connected again", self.name);
                    pool.connections = connections;
                }
                Err(error) => {
                    tracing::error!("{}: {error}", self.name);
                    let told = io::Error::new(error.kind(), error.to_string());
                    pool.failed = Some(Arc::new(error));
                    return Err(told);
                }
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
            // A server that has stopped takes no goodbye.
            for connection in pool.connections.drain(..) {
                connection.lose("given up with the others");
            }
        }
    }

    /// Makes new connections within the time limit, and brings the server up to date.
    fn reconnect(&self) -> io::Result<Vec<Arc<Connection>>> {
        let start = clock::now();
        let limit = self.address.reconnect_timeout;
        let mut timeout = self.address.answer_timeout;
        // One try without a limit has the time of an answer.
        if !limit.is_zero() {
            timeout = timeout.min(limit);
        }
        loop {
            let error = match self.reconnect_once(timeout) {
                Ok(connections) => return Ok(connections),
                // Another disk, or one that refuses what it took before.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
                Err(error) => error,
            };
            let left = limit.saturating_sub(start.elapsed());
            if left < RETRY_INTERVAL * 2 {
                let seconds = limit.as_secs();
                let problem = format!("no connection to the server for {seconds} s: {error}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
            thread::sleep(RETRY_INTERVAL);
            timeout = timeout.min(left - RETRY_INTERVAL);
        }
    }

    fn reconnect_once(&self, timeout: Duration) -> io::Result<Vec<Arc<Connection>>> {
        // A server may be up before its exports are: what it says now isn't its last word.
        let (first, export) = Connection::open(&self.address, timeout)
            .map_err(|error| io::Error::other(error.to_string()))?;
        if export != self.export {
            return Err(wrong("the server comes back with an export of another size or kind"));
        }
        let connections = self.with_others(first, timeout);
        let changes = self.log.lock().all();
        for (offset, change) in &changes {
            self.send_change(*offset, change, 0, |request| {
                connections[0].call(request).map_err(|failed| match failed {
                    Failed::Refused(error) => wrong(&format!("unflushed data is lost: {error}")),
                    Failed::Lost(error) => error,
                })
            })?;
        }
        Ok(connections)
    }
}
