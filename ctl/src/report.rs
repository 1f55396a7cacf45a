//! Errors as people and programs read them. Whatever a plugin wrote stays on its line.

use plugind_protocol::{Error, Kind};
use serde_json::Value;

use crate::colour::{Style, Tone};
use crate::escape;
use crate::json::{self, Layout};
use crate::page::Page;

/// Of what a plugin says, the most characters of one line that are shown.
const LINE_MAX: usize = 1000;
/// The most lines of a plugin's log that an error shows; `logs` shows the rest.
const LINES_MAX: usize = 10;

/// `pluginctl: <Kind>: message`, the hint, and the facts that say why.
pub(crate) fn text(error: &Error, style: Style) -> String {
    let mut page = Page::default();
    let head = style.paint(Tone::Bad, &format!("{}:", error.kind));
    page.line(format_args!("pluginctl: {head} {}", escape::short(&error.message, 4 * LINE_MAX)));
    if !error.hint.is_empty() {
        page.line(format_args!("  hint: {}", escape::short(&error.hint, 4 * LINE_MAX)));
    }
    if !error.outcome_known {
        page.line("  note: the work may have been done, or half done");
    }
    if error.kind == Kind::PluginError {
        plugin_error(&mut page, &error.details);
    }
    page.into_text() + &log(error)
}

/// The error as one line of JSON, `{"error":{"kind":…}}`.
pub(crate) fn json(error: &Error) -> String {
    let text = serde_json::json!({ "error": error }).to_string();
    format!("{}\n", json::lay_out(&text, Layout::Compact))
}

/// The plugin's own code and data.
fn plugin_error(page: &mut Page, details: &Value) {
    if let Some(code) = details.get("code").and_then(Value::as_i64) {
        page.line(format_args!("  code: {code}"));
    }
    if let Some(data) = details.get("data").filter(|data| !data.is_null()) {
        page.line(format_args!("  data: {}", escape::short(&data.to_string(), LINE_MAX)));
    }
}

/// The last lines that the plugin, or a part of plugind, wrote to its standard error.
pub(crate) fn log(error: &Error) -> String {
    let mut page = Page::default();
    let lines: Vec<&str> = match error.details.get("stderr") {
        Some(Value::String(all)) => all.lines().collect(),
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    for line in &lines[lines.len().saturating_sub(LINES_MAX)..] {
        page.line(format_args!("  stderr: {}", escape::short(line, LINE_MAX)));
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_crash_shows_hint_doubt_and_the_last_words() {
        let error =
            Error::new(Kind::Crashed, "textstats was killed by signal 9", "see `pluginctl logs textstats`")
                .outcome_unknown()
                .with_details(
                    json!({"signal": 9, "stderr": ["loading", "\u{1b}]0;evil\u{7}boom\n  hint: run rm"]}),
                );
        assert_eq!(
            text(&error, Style::PLAIN),
            "pluginctl: Crashed: textstats was killed by signal 9\n  \
               hint: see `pluginctl logs textstats`\n  \
               note: the work may have been done, or half done\n  \
               stderr: loading\n  \
               stderr: \\u{1b}]0;evil\\u{7}boom\\n  hint: run rm\n"
        );
    }

    #[test]
    fn a_plugins_own_failure_shows_code_and_data_and_forges_nothing() {
        let error = Error::new(
            Kind::PluginError,
            "no such file\n  hint: pluginctl grant me all",
            "fix the arguments",
        )
        .with_details(json!({"code": -32000, "message": "no such file", "data": {"path": "\u{202e}x"}}));
        assert_eq!(
            text(&error, Style::PLAIN),
            "pluginctl: PluginError: no such file\\n  hint: pluginctl grant me all\n  \
               hint: fix the arguments\n  \
               code: -32000\n  \
               data: {\"path\":\"\\u{202e}x\"}\n"
        );
    }

    #[test]
    fn only_the_last_lines_of_a_long_log_are_shown() {
        let lines: Vec<String> = (0..50).map(|n| format!("line {n}")).collect();
        let error = Error::new(Kind::Crashed, "x", "y").with_details(json!({ "stderr": lines.join("\n") }));
        let text = text(&error, Style::PLAIN);
        assert_eq!(text.lines().filter(|line| line.starts_with("  stderr: ")).count(), LINES_MAX);
        assert!(text.ends_with("  stderr: line 49\n"));
    }

    #[test]
    fn programs_get_the_whole_error_on_one_line() {
        let error = Error::new(Kind::Disabled, "textstats is disabled\n", "pluginctl enable textstats");
        let line = json(&error);
        assert_eq!(line.matches('\n').count(), 1);
        let back: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(serde_json::from_value::<Error>(back["error"].clone()).unwrap(), error);
    }
}
