//! The command against real images, as a shell sees it: output, messages, exit codes, and what is
//! in the image afterwards, judged by `e2fsck`.
//!
//! No image is opened in this process: a lock on it would be inherited by the children of other
//! tests until they have started their program.
#![allow(clippy::unwrap_used, reason = "a test may fail so")]

mod accounts;
mod acls;
mod archiving;
mod building;
mod changing;
mod checking;
mod comparing;
mod containers;
mod copying;
mod crowded;
mod disks;
mod documented;
mod editing;
mod examples;
mod extracting;
mod full_host;
mod growing;
mod hostile;
mod importing;
mod inspecting;
mod layering;
mod making;
mod mapping;
mod mounting;
mod nilfs2;
mod quotas;
mod reading;
mod refusing;
mod remounting;
mod servers;
mod setting;
mod shells;
mod shrinking;
mod signatures;
mod space;
mod stopping;
mod support;
mod threads;
mod undeleting;
mod unread;
mod usage;
mod volumes;
mod watching;
