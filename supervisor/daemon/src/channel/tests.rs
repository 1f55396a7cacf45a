//! The frames of a channel, read the short way and the long way.

use super::wire::Params;

#[test]
fn the_short_way_reads_params_as_the_long_way_does() {
    let text = r#"{"plugin":"a-b","command":"c.d_e","arguments":{"x":"}"}}"#;
    let short = Params::plain(text).unwrap();
    let long: Params<'_> = serde_json::from_str(text).unwrap();
    assert_eq!(short.plugin.unwrap().0, long.plugin.unwrap().0);
    assert_eq!(short.command, long.command);
    assert_eq!(short.arguments.unwrap().get(), long.arguments.unwrap().get());
    for other in [
        r#"{"plugin":"a","command":"c","arguments":{},"meta":{"credit":1}}"#,
        r#"{"plugin":"a","command":"c","arguments":{},"arguments":{}}"#,
        r#"{"plugin":"a","command":"c","arguments":{}"#,
        r#"{"plugin":"a","command":"c","arguments":}"#,
        r#"{"plugin":"a\u0062","command":"c","arguments":1}"#,
        r#"{"command":"c","plugin":"a","arguments":1}"#,
        r#"{"plugin":"a","command":"c"}"#,
    ] {
        assert!(Params::plain(other).is_none(), "{other}");
    }
}
