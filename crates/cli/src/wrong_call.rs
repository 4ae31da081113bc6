//! How wrong calls are told: what the parser of the command line says, in the form of the commands' own messages.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::num::{IntErrorKind, ParseIntError};

/// A message about a wrong call, and where to read how it is called.
pub fn with_advice(message: &str, called: &str) -> String {
    format!("{message}\nTry '{called} --help'.")
}

/// Whether what the parser says is help, which was asked for or is all that it can say.
pub fn is_help(error: &clap::Error) -> bool {
    !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What the parser says of a wrong call, as the commands themselves would.
pub fn wrong_call(mut error: clap::Error, called: &str) -> String {
    let mut tips = match error.get(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips.clone(),
        _ => Vec::new(),
    };
    // How to pass an unknown option as a name is never what is meant.
    tips.retain(|tip| !tip.to_string().starts_with("to pass "));
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && !word.starts_with('-')
    {
        match called {
            "drystone build" => tips.push("sources follow --from".into()),
            "drystone mkfs" => tips.push("the size follows --size".into()),
            _ => {}
        }
    }
    match tips.is_empty() {
        true => drop(error.remove(ContextKind::Suggested)),
        false => drop(error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips))),
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text).trim_end();
    match error.source().and_then(|source| source.downcast_ref::<ParseIntError>()) {
        Some(why) if *why.kind() == IntErrorKind::InvalidDigit => {
            text.replace(&format!(": {why}"), ": it isn't a number")
        }
        _ => text.to_string(),
    }
}
