//! `top`: in a pipe, and on a pseudo-terminal that it must leave as it was.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod fake;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use fake::session::Session;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use nix::unistd::Pid;
use serde_json::Value;

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn a_pipe_gets_one_round_of_plain_lines() {
    let session = Session::start();
    let (code, out, err) = session.run(&["top", "-d", "100ms"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split('\t').collect()).collect();
    let [demo, idle] = &lines[..] else { panic!("two plugins: {out}") };
    assert_eq!((demo.len(), demo[0], demo[1]), (13, "demo", "active"));
    assert!(demo[2].parse::<f64>().unwrap() > 0.0, "{out}");
    assert_eq!(demo[3..10], ["0", "254", "1254", "2", "0", "0", "0"]);
    assert_eq!(idle[..6], ["idle-one", "inactive", "0", "0", "-", "-"]);
}

#[test]
fn rounds_names_and_sorting_are_as_asked() {
    let session = Session::start();
    let (code, out, _) = session.run(&["top", "-d", "50ms", "-n", "3", "idle-one", "demo"]);
    assert_eq!((code, out.lines().count()), (0, 6));
    assert!(out.starts_with("demo\t"), "{out}");
    let (_, out, _) = session.run(&["top", "-d", "50ms", "--sort", "name", "idle-one"]);
    assert!(out.starts_with("idle-one\t") && out.lines().count() == 1, "{out}");
    let (code, _, err) = session.run(&["top", "absent", "demo"]);
    assert_eq!(code, 4);
    assert!(err.starts_with("pluginctl: NoSuchPlugin: "), "{err}");
}

#[test]
fn json_is_one_object_a_round() {
    let session = Session::start();
    let (code, out, _) = session.run(&["top", "-d", "50ms", "-n", "2", "-o", "json"]);
    assert_eq!((code, out.lines().count()), (0, 2));
    let round: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!((&round["total"]["plugins"], &round["total"]["active"]), (&2.into(), &1.into()));
    assert!(round["plugins"][0]["calls_per_second"].as_f64().unwrap() > 0.0, "{out}");
    assert!(round["plugins"][1]["latency_p50_us"].is_null(), "{out}");
}

/// `top` on a terminal of its own.
struct Terminal {
    child: Child,
    master: File,
    slave: OwnedFd,
    found: Termios,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    fn start(session: &Session, words: &[&str], rows: u16) -> Terminal {
        let size = Winsize { ws_row: rows, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let found = tcgetattr(&pty.slave).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = session
            .command(words)
            .env("TERM", "xterm")
            .env("LANG", "C.UTF-8")
            .env("NO_COLOR", "1")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let master = File::from(pty.master);
        let mut reader = master.try_clone().unwrap();
        let (sender, shown) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { child, master, slave: pty.slave, found, shown, text: String::new() }
    }

    /// Waits until this is shown; what was shown up to then is taken away.
    fn until(&mut self, what: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(at) = self.text.find(what) {
                let rest = self.text.split_off(at + what.len());
                return std::mem::replace(&mut self.text, rest);
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no {what:?} in {:?}", self.text);
            if let Ok(bytes) = self.shown.recv_timeout(Duration::from_millis(100)) {
                self.text.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// The exit code, once the screen was left and the terminal is as it was.
    fn ends(&mut self) -> Option<i32> {
        let last = self.until(LEAVE);
        assert!(last.contains("\x1b[?25h"), "the cursor is hidden: {last:?}");
        let status = self.child.wait().unwrap();
        assert_eq!(tcgetattr(self.slave.as_fd()).unwrap(), self.found);
        status.code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_terminal_is_drawn_on_sorted_by_keys_and_left_with_q() {
    let session = Session::start();
    let mut top = Terminal::start(&session, &["top", "-d", "100ms"], 24);
    top.until(ENTER);
    let first = top.until("sort by: n name");
    assert!(first.contains("pluginctl top - 1 of 2 plugins active, sorted by calls, every 100ms"), "{first}");
    assert!(first.contains("NAME     STATE    CALLS/S"), "{first}");
    assert!(!tcgetattr(&top.slave).unwrap().local_flags.contains(LocalFlags::ICANON));
    top.press(b"m");
    top.until("sorted by memory");
    // Neither an arrow nor Ctrl-Z is a key.
    top.press(b"\x1b[A\x1a");
    top.press(b"P");
    top.until("sorted by CPU");
    top.press(b"q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn signals_ctrl_c_and_errors_leave_the_terminal_as_it_was() {
    let session = Session::start();
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let mut top = Terminal::start(&session, &["top"], 24);
        top.until("sort by: n name");
        top.signal(signal);
        assert_eq!(top.ends(), Some(code), "{signal}");
    }
    let mut top = Terminal::start(&session, &["top"], 24);
    top.until("sort by: n name");
    top.press(b"\x03");
    assert_eq!(top.ends(), Some(130));

    // The supervisor goes away between two rounds.
    let mut top = Terminal::start(&session, &["top", "-d", "100ms"], 24);
    top.until("sort by: n name");
    session.close();
    assert_eq!(top.ends(), Some(9));
    top.until("pluginctl: Unavailable: ");
}

#[test]
fn the_window_s_height_is_kept_to_and_followed() {
    let session = Session::start();
    let mut top = Terminal::start(&session, &["top", "-d", "1h"], 7);
    let low = top.until("sort by: n name");
    assert!(low.contains("… and 2 more") && !low.contains("demo "), "{low}");
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&top.master, size).unwrap();
    top.signal(Signal::SIGWINCH);
    let high = top.until("sort by: n name");
    assert!(high.contains("demo ") && high.contains("idle-one "), "{high}");
    top.press(b"q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn the_last_of_so_many_rounds_stays_on_the_ordinary_screen() {
    let session = Session::start();
    let mut top = Terminal::start(&session, &["top", "-d", "50ms", "-n", "2"], 24);
    assert_eq!(top.ends(), Some(0));
    let left = top.until("idle-one inactive");
    assert!(left.contains("\ndemo     active"), "{left}");
}
