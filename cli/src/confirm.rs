//! Consent to what cannot be undone: the plan first, then a question.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::Args;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{View, complain};

/// Options of commands that delete or move.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Consent {
    /// Do not ask; needed where nobody can be asked
    #[arg(long)]
    pub(crate) yes: bool,
    /// Show the plan and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl Consent {
    /// Shows the plan. True: go ahead. False: it was a dry run. A no is a failure, so that a
    /// script does not go on as if it had been done.
    pub(crate) fn obtain(
        self,
        plan: &View,
        question: &str,
        context: &mut Context,
    ) -> Result<bool, Failure> {
        if self.dry_run {
            context.output.show(plan)?;
            context.output.note("dry run: nothing was changed");
            return Ok(false);
        }
        if !context.output.quiet || !self.yes {
            complain(plan.to_text(str::to_owned).trim_end());
        }
        if self.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(
                Failure::usage("this needs consent, and nobody can be asked here")
                    .hint("the same with --yes, or --dry-run to see the plan only"),
            );
        }
        if asked(question)? {
            Ok(true)
        } else {
            Err(Failure::new(Exit::Failed, "not done"))
        }
    }
}

fn asked(question: &str) -> Result<bool, Failure> {
    let mut stderr = io::stderr();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::io("standard input", &error))?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_means_yes() {
        for yes in ["y\n", "Y\n", " yes \n"] {
            assert!(is_yes(yes));
        }
        for no in ["", "\n", "n\n", "yeah\n", "yes please\n"] {
            assert!(!is_yes(no));
        }
    }
}
