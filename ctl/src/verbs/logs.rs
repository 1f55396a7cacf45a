//! `logs`: what a plugin wrote to its standard error.

use std::time::Duration;

use plugind_protocol::Error;

use super::{DONE, client};
use crate::cli::LogsArgs;
use crate::escape;
use crate::json::{self, Layout};
use crate::output::Context;
use crate::page::Page;

/// How often `--follow` looks for new lines.
const POLL: Duration = Duration::from_millis(250);
/// How many lines `--follow` asks for: more than come between two looks.
const WINDOW: u32 = 1000;

pub(super) async fn run(context: &Context, args: &LogsArgs) -> Result<u8, Error> {
    let client = client(context).await?;
    if !args.follow {
        let lines = client.logs(&args.name, args.lines).await?;
        if context.is_json() {
            context.json(&lines)?;
        } else {
            context.print(&text(&lines))?;
        }
        return Ok(DONE);
    }

    let mut seen = client.logs(&args.name, WINDOW.max(args.lines)).await?;
    let first = seen.len().saturating_sub(usize::try_from(args.lines).unwrap_or(usize::MAX));
    show(context, &seen[first..])?;
    while !context.reader_gone() {
        tokio::time::sleep(POLL).await;
        let now = client.logs(&args.name, WINDOW).await?;
        show(context, fresh(&seen, &now))?;
        seen = now;
    }
    Ok(DONE)
}

fn show(context: &Context, lines: &[String]) -> Result<(), Error> {
    if lines.is_empty() {
        return Ok(());
    }
    if !context.is_json() {
        return context.print(&text(lines));
    }
    let mut page = Page::default();
    for line in lines {
        page.line(json::lay_out(&serde_json::json!(line).to_string(), Layout::Compact));
    }
    context.print(&page.into_text())
}

fn text(lines: &[String]) -> String {
    let mut page = Page::default();
    for line in lines {
        page.line(escape::line(line));
    }
    page.into_text()
}

/// The lines of `now` that come after those of `seen`: both are ends of one log, so the longest end of `seen` that
/// `now` begins with is what they share.
fn fresh<'a>(seen: &[String], now: &'a [String]) -> &'a [String] {
    let shared = (0..=seen.len().min(now.len()))
        .rev()
        .find(|count| seen[seen.len() - count..] == now[..*count])
        .unwrap_or(0);
    &now[shared..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.chars().map(String::from).collect()
    }

    #[test]
    fn only_new_lines_are_shown() {
        for (seen, now, expected) in [
            ("", "", ""),
            ("", "ab", "ab"),
            ("ab", "ab", ""),
            ("ab", "abc", "c"),
            ("abcd", "cdef", "ef"),
            ("aab", "aabaab", "aab"),
            ("abc", "xyz", "xyz"),
            ("abc", "", ""),
        ] {
            assert_eq!(fresh(&lines(seen), &lines(now)), lines(expected), "{seen} {now}");
        }
    }

    #[test]
    fn lines_cannot_drive_the_terminal() {
        assert_eq!(text(&["a\u{1b}[2J".into(), "b".into()]), "a\\u{1b}[2J\nb\n");
    }
}
