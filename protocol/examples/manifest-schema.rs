//! Prints the JSON Schema of `plugin.json`; what it prints is committed as `units/plugind/plugin.schema.json`.

fn main() {
    print!("{}", plugind_protocol::schema::manifest_text());
}
