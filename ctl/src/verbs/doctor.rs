//! `doctor`: a canary through every step, and what to do about those that fail.

use plugind_protocol::{Error, Kind};

use super::{DONE, client};
use crate::cli::DoctorArgs;
use crate::colour::{Style, Tone};
use crate::escape;
use crate::model::Step;
use crate::output::Context;
use crate::page::Page;
use crate::{private, report};

pub(super) async fn run(context: &Context, args: &DoctorArgs) -> Result<u8, Error> {
    let (mut steps, canary) = installed(context).await?;
    let mut log = String::new();
    let canary = match canary {
        Some(found) => found,
        None => match private::with(context.deadline(), args.verbose, async |client| client.doctor().await)
            .await
        {
            Ok(found) => found,
            Err(error) if private::interrupted_code(&error).is_some() => return Err(error),
            Err(error) => {
                log = report::log(&error);
                vec![failed("private supervisor", &error)]
            }
        },
    };
    steps.extend(canary);
    if context.is_json() {
        context.json(&steps)?;
    } else {
        context.print(&text(&steps, context.style))?;
        if !log.is_empty() {
            context.note(log.trim_end());
        }
    }
    Ok(if steps.iter().all(|step| step.ok) { DONE } else { Kind::SandboxDenied.exit_code() })
}

/// How the installed daemon is reached, and what its canary found; none where there is no daemon to ask.
async fn installed(context: &Context) -> Result<(Vec<Step>, Option<Vec<Step>>), Error> {
    let client = match client(context).await {
        Ok(client) => client,
        Err(error) => return Ok((vec![failed("session bus", &error)], None)),
    };
    let bus = passed("session bus", "reached");
    match client.doctor().await {
        Ok(steps) => Ok((vec![bus, passed("daemon", "plugind answers")], Some(steps))),
        // It was never reached: that is the normal state of a machine without the daemon.
        Err(error) if error.kind == Kind::Unavailable && error.outcome_known => {
            let detail = format!("a private supervisor is used: {}", error.message);
            Ok((vec![bus, passed("daemon", &detail)], None))
        }
        Err(error) => Err(error),
    }
}

fn passed(step: &str, detail: &str) -> Step {
    Step { name: step.into(), ok: true, detail: detail.into(), fix: String::new() }
}

fn failed(step: &str, error: &Error) -> Step {
    Step { name: step.into(), ok: false, detail: error.message.clone(), fix: error.hint.clone() }
}

/// A step that passed and could be better: what the configuration accepts.
fn is_weak(step: &Step) -> bool {
    step.ok && !step.fix.is_empty()
}

fn text(steps: &[Step], style: Style) -> String {
    let mut page = Page::default();
    for step in steps {
        let (word, tone) = match (step.ok, is_weak(step)) {
            (false, _) => ("FAILED", Tone::Bad),
            (true, true) => ("weak", Tone::Warn),
            (true, false) => ("ok", Tone::Good),
        };
        let (mark, word) = (style.mark(step.ok), style.paint(tone, word));
        let detail = escape::line(&step.detail);
        let colon = if detail.is_empty() { "" } else { ": " };
        page.line(format_args!("{mark}{word} {}{colon}{detail}", escape::line(&step.name)));
        if !step.fix.is_empty() {
            page.line(format_args!("  fix: {}", escape::line(&step.fix)));
        }
    }
    match steps.iter().filter(|step| !step.ok).count() {
        0 if steps.iter().any(is_weak) => {
            page.line("\nPlugins can run here, with less than every layer in force: see what is weak.");
        }
        0 => page.line("\nPlugins can run here with every layer in force."),
        1 => page.line("\n1 step failed."),
        failures => page.line(format_args!("\n{failures} steps failed.")),
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_accepted_without_force_is_not_called_good() {
        let mut weak = passed("limit TasksMax", "NOT in force");
        weak.fix = "delegate pids".into();
        let page = text(&[weak], Style::PLAIN);
        assert!(page.starts_with("weak limit TasksMax: NOT in force\n  fix: delegate pids\n"), "{page}");
        assert!(page.ends_with("with less than every layer in force: see what is weak.\n"), "{page}");
    }

    #[test]
    fn a_failed_step_comes_with_its_fix() {
        let steps = [
            passed("bubblewrap", "0.11.0"),
            passed("landlock", ""),
            Step {
                name: "user namespaces".into(),
                ok: false,
                detail: "refused".into(),
                fix: "sysctl x=0\nrm".into(),
            },
        ];
        assert_eq!(
            text(&steps, Style::PLAIN),
            "ok bubblewrap: 0.11.0\nok landlock\nFAILED user namespaces: refused\n  fix: sysctl x=0\\nrm\n\n1 step failed.\n"
        );
        assert!(
            text(&steps[..2], Style::PLAIN).ends_with("\nPlugins can run here with every layer in force.\n")
        );
    }
}
