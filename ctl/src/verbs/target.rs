//! Which command a person means.

use plugind_protocol::{Error, Kind, name};

/// The plugin and the command from one word or two.
pub(super) fn target<'a>(first: &'a str, second: Option<&'a str>) -> Result<(&'a str, &'a str), Error> {
    let found = match second {
        Some(command) if !first.contains('.') => Some((first, command)),
        Some(_) => None,
        None => name::split_qualified(first),
    };
    found.ok_or_else(|| {
        Error::new(
            Kind::InvalidArguments,
            format!(
                "`{}` does not name one command",
                [first, second.unwrap_or_default()].join(" ").trim_end()
            ),
            "write PLUGIN.COMMAND, or PLUGIN COMMAND; `pluginctl commands` lists them",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_or_two_name_a_command() {
        assert_eq!(target("textstats.count", None), Ok(("textstats", "count")));
        assert_eq!(target("a-b.c.d", None), Ok(("a-b", "c.d")));
        assert_eq!(target("textstats", Some("count")), Ok(("textstats", "count")));
        assert_eq!(target("textstats", Some("a.b")), Ok(("textstats", "a.b")));
        for (first, second) in
            [("textstats", None), ("a.b", Some("c")), ("A.b", None), (".b", None), ("a.", None)]
        {
            let error = target(first, second).unwrap_err();
            assert_eq!((error.kind, error.exit_code()), (Kind::InvalidArguments, 2), "{first}");
        }
    }
}
