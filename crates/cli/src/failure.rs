//! How a command ends when it doesn't succeed.

use crate::messages::tell;
use std::process::ExitCode;

/// Something failed.
const FAILED: u8 = 1;
/// The command was called wrongly; clap uses the same.
pub const USAGE: u8 = 2;

/// Why a command didn't succeed.
#[derive(Debug)]
pub enum Failure {
    /// It was called wrongly.
    Usage(String),
    /// It failed, and this is why.
    Failed(anyhow::Error),
    /// It failed in part, and has said where.
    Reported,
    /// It wants to end with this code and has said why.
    Code(u8),
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// True if the reader of our output has closed the pipe.
    pub fn is_closed_pipe(&self) -> bool {
        let Failure::Failed(error) = self else { return false };
        error.chain().any(|cause| {
            let cause = cause.downcast_ref::<std::io::Error>();
            cause.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
        })
    }

    /// Prints the reason, and returns the exit code.
    pub fn report(self) -> ExitCode {
        let is_closed_pipe = self.is_closed_pipe();
        ExitCode::from(match self {
            Failure::Usage(message) => {
                tell(message);
                USAGE
            }
            Failure::Failed(error) => {
                if !is_closed_pipe {
                    tell(format_args!("{error:#}"));
                }
                FAILED
            }
            Failure::Reported => FAILED,
            Failure::Code(code) => code,
        })
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Failed(error.into())
    }
}
