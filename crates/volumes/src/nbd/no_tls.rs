//! Stands for `tls` in a library without that feature: there is no session.

use super::address::TlsWish;
use std::io::{self, Read};

#[derive(Debug)]
pub(super) enum NoSession {}

impl NoSession {
    pub fn new(_wish: &TlsWish) -> io::Result<NoSession> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn is_shaking_hands(&self) -> bool {
        match *self {}
    }

    pub fn read(&self, _bytes: &mut [u8]) -> io::Result<Option<usize>> {
        match *self {}
    }

    pub fn take_in(&self, _receive: &mut dyn Read) -> io::Result<usize> {
        match *self {}
    }

    pub fn encrypt(&self, _bytes: &[u8]) -> io::Result<(usize, Vec<u8>)> {
        match *self {}
    }

    pub fn outgoing(&self) -> io::Result<Vec<u8>> {
        match *self {}
    }
}
