//! The driver: measures, shows, and checks that nothing is lost.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use plugind_bench::rows::Bench;
use plugind_bench::{soak, table};

/// Measures plugind on the stage, or wherever it is installed.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measures; the report as JSON on standard output, progress on standard error.
    Run {
        /// Less than a minute, rough numbers.
        #[arg(long)]
        quick: bool,
        /// What is measured, for the report.
        #[arg(long, default_value = "unknown")]
        commit: String,
        /// Only these rows: memory, channel, dbus, cold, spawn, flood, neighbours, growth; or noise, the floor
        /// against itself.
        #[arg(long)]
        only: Option<String>,
    },
    /// Shows a report as a table.
    Table {
        /// What `run` printed.
        report: PathBuf,
        /// Puts the table into this document, too, between its marks.
        #[arg(long)]
        update_docs: Option<PathBuf>,
    },
    /// Calls of mixed sizes from many callers, each answer checked against its own request.
    Soak {
        /// How many.
        #[arg(long, default_value_t = 1_000_000)]
        calls: u64,
        /// Callers with a channel each.
        #[arg(long, default_value_t = 16)]
        callers: u64,
        /// Of the random sizes and texts; the same seed makes the same requests.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().verb {
        Verb::Run { quick, commit, only } => {
            let report = Bench::new(commit, quick)?.run(only.as_deref());
            println!("{}", serde_json::to_string_pretty(&report)?);
        }
        Verb::Table { report, update_docs } => {
            let report = serde_json::from_slice(&fs::read(report)?)?;
            let table = table::markdown(&report);
            println!("{}\n{table}", table::details(&report));
            if let Some(document) = update_docs {
                table::update(&document, &table)?;
            }
        }
        Verb::Soak { calls, callers, seed } => soak::run(calls, callers, seed)?,
    }
    Ok(())
}
