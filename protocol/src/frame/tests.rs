use proptest::prelude::*;

use super::*;

type Outcome = Result<String, FrameError>;

/// What comes out when `pieces` arrive one after the other, taken after each.
fn decode<'a>(frame_max: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Outcome> {
    let mut decoder = Decoder::new(frame_max);
    let mut outcomes = Vec::new();
    for piece in pieces {
        feed(&mut decoder, piece, &mut outcomes);
    }
    if let Err(error) = decoder.finish() {
        outcomes.push(Err(error));
    }
    outcomes
}

fn feed(decoder: &mut Decoder, bytes: &[u8], outcomes: &mut Vec<Outcome>) {
    decoder.push(bytes, |frame| outcomes.push(frame.map(str::to_owned)));
}

fn one(bytes: &[u8]) -> Outcome {
    let mut outcomes = decode(FRAME_MAX_DEFAULT, [bytes]);
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

#[test]
fn lines_become_frames() {
    let outcomes = decode(100, [b"{\"a\":1}\n\r\n  \n\n {\"b\":\"\\u0000\"}\r\n{}\n".as_slice()]);
    let frames: Vec<String> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(frames, ["{\"a\":1}", " {\"b\":\"\\u0000\"}", "{}"]);
}

#[test]
fn each_violation_has_its_own_name() {
    let deep = format!("{{\"a\":{}\n", "[".repeat(200_000));
    for (bytes, expected) in [
        (b"\xef\xbb\xbf{}\n".as_slice(), FrameError::ByteOrderMark),
        (b"{\"a\":\"\0\"}\n", FrameError::Nul),
        (b"{\"a\":\"\xff\"}\n", FrameError::InvalidUtf8 { at: 6 }),
        (b"{\"a\":\"\xc3\"}\n", FrameError::InvalidUtf8 { at: 6 }),
        (b"[]\n", FrameError::NotAnObject { start: "[]".into() }),
        (b"7\n", FrameError::NotAnObject { start: "7".into() }),
        (b"null\n", FrameError::NotAnObject { start: "null".into() }),
        (b"hi\x1b[2J\n", FrameError::NotAnObject { start: "hi\\x1b[2J".into() }),
        (b"Content-Length: 52\r\n", FrameError::LspFraming),
        (b"content-length:52\n", FrameError::LspFraming),
        (b"{\"a\":1", FrameError::Truncated { bytes: 6 }),
        (deep.as_bytes(), FrameError::TooDeep { limit: 64 }),
    ] {
        assert_eq!(one(bytes), Err(expected));
    }
}

#[test]
fn two_hundred_thousand_brackets_alone_are_no_object() {
    let brackets = "[".repeat(200_000) + "\n";
    assert_eq!(one(brackets.as_bytes()), Err(FrameError::NotAnObject { start: "[".repeat(80) }));
}

#[test]
fn a_violation_leaves_the_lines_around_it() {
    let outcomes = decode(100, [b"{}\n[]\n{\"a\":1}\n".as_slice()]);
    assert_eq!(outcomes[0], Ok("{}".to_owned()));
    assert!(outcomes[1].is_err());
    assert_eq!(outcomes[2], Ok("{\"a\":1}".to_owned()));
}

#[test]
fn depth_is_counted_outside_strings_only() {
    let nested = |levels: usize| format!("{{\"a\":{}1{}}}\n", "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert!(one(nested(64).as_bytes()).is_ok());
    assert_eq!(one(nested(65).as_bytes()), Err(FrameError::TooDeep { limit: 64 }));
    let quoted = format!("{{\"a\":\"\\\"{}\\\\\",\"b\":[]}}\n", "[{".repeat(100));
    assert!(one(quoted.as_bytes()).is_ok());
    let wide = format!("{{\"a\":[{}]}}\n", vec!["[]"; 1000].join(","));
    assert!(one(wide.as_bytes()).is_ok());
}

#[test]
fn frame_max_is_exact_with_either_line_end() {
    let line = |length: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
    for end in ["\n", "\r\n"] {
        let fits = line(100) + end;
        assert_eq!(decode(100, [fits.as_bytes()]), [Ok(line(100))]);
        let over = line(101) + end + "{}" + end;
        assert_eq!(
            decode(100, [over.as_bytes()]),
            [Err(FrameError::TooLarge { limit: 100 }), Ok("{}".to_owned())]
        );
    }
}

#[test]
fn blanks_longer_than_a_frame_are_too_large_whole_or_in_pieces() {
    let bytes = [b" ".repeat(12).as_slice(), b"\n{}\n"].concat();
    let expected = [Err(FrameError::TooLarge { limit: 8 }), Ok("{}".to_owned())];
    assert_eq!(decode(8, [bytes.as_slice()]), expected);
    assert_eq!(decode(8, bytes.chunks(1)), expected);
}

#[test]
fn the_cap_holds_whatever_is_asked_for() {
    let mut decoder = Decoder::new(usize::MAX);
    let mut outcomes = Vec::new();
    feed(&mut decoder, &vec![b'x'; FRAME_MAX_CAP + 2], &mut outcomes);
    assert_eq!(outcomes, [Err(FrameError::TooLarge { limit: FRAME_MAX_CAP })]);
}

#[test]
fn a_line_of_one_gib_is_reported_at_once_and_once_and_never_held() {
    let piece = [b'x'; 8192];
    let mut decoder = Decoder::new(FRAME_MAX_FLOOR);
    let (mut outcomes, mut most) = (Vec::new(), 0);
    for pushed in 1..=(1 << 30) / piece.len() {
        feed(&mut decoder, &piece, &mut outcomes);
        most = most.max(decoder.held());
        assert!(!outcomes.is_empty() || pushed * piece.len() <= FRAME_MAX_FLOOR + piece.len());
    }
    assert_eq!(outcomes, [Err(FrameError::TooLarge { limit: FRAME_MAX_FLOOR })]);
    assert!(most <= 2 * FRAME_MAX_FLOOR + 2, "{most}");
    outcomes.clear();
    feed(&mut decoder, b"\n{}\n", &mut outcomes);
    assert_eq!(outcomes, [Ok("{}".to_owned())]);
    assert_eq!(decoder.finish(), Ok(()));
}

#[test]
fn memory_of_a_large_frame_is_given_back() {
    let mut decoder = Decoder::new(FRAME_MAX_CAP);
    let line = format!("{{\"a\":\"{}\"}}\n", "x".repeat(FRAME_MAX_CAP - 8));
    let mut outcomes = Vec::new();
    feed(&mut decoder, line.as_bytes(), &mut outcomes);
    assert_eq!(outcomes[0].as_ref().map(String::len), Ok(FRAME_MAX_CAP));
    assert!(decoder.is_roomy());
    decoder.rest();
    assert!(!decoder.is_roomy() && decoder.held() == 0);
    feed(&mut decoder, b"{\"a\":", &mut outcomes);
    decoder.rest();
    feed(&mut decoder, b"1}\n", &mut outcomes);
    assert_eq!(outcomes[1], Ok("{\"a\":1}".to_owned()), "an open line is no rest");
}

#[test]
fn a_quiet_stream_takes_little_room_and_a_busy_one_reads_much_at_once() {
    let mut decoder = Decoder::new(FRAME_MAX_DEFAULT);
    for _ in 0..100 {
        decoder.push(b"{\"a\":1}\n", |_| ());
    }
    assert_eq!(decoder.held(), 4096);
    for _ in 0..10 {
        let room = decoder.space().len();
        decoder.space().fill(b'\n');
        decoder.filled(room);
        assert!(decoder.frame().is_none());
    }
    assert_eq!(decoder.space().len(), 64 << 10);
}

#[test]
fn the_end_of_the_stream_is_reported_once_and_forgives_blanks() {
    let mut decoder = Decoder::new(100);
    let mut outcomes = Vec::new();
    feed(&mut decoder, b"{}\n \r", &mut outcomes);
    assert_eq!(outcomes, [Ok("{}".to_owned())]);
    assert_eq!(decoder.finish(), Ok(()));
    feed(&mut decoder, b"{\"half", &mut outcomes);
    assert_eq!(outcomes.len(), 1);
    assert_eq!(decoder.finish(), Err(FrameError::Truncated { bytes: 6 }));
    assert_eq!(decoder.finish(), Ok(()));
}

#[test]
fn errors_map_to_kinds_with_hints() {
    assert_eq!(Error::from(FrameError::TooLarge { limit: 1 }).kind, Kind::FrameTooLarge);
    let error = Error::from(FrameError::LspFraming);
    assert_eq!(error.kind, Kind::ProtocolViolation);
    assert!(error.hint.contains("no headers"));
}

/// Lines of every sort, with characters of one to four bytes.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let text = "[a-z\"\\\\{}\\[\\]ß€👩\u{200d}👧]{0,40}";
    prop_oneof![
        6 => text.prop_map(|text| serde_json::json!({ "text": text }).to_string().into_bytes()),
        1 => text.prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..60),
        1 => Just(b"\xef\xbb\xbf{}".to_vec()),
        1 => Just(b"Content-Length: 2".to_vec()),
        1 => Just(Vec::new()),
        1 => (60_usize..200).prop_map(|length| vec![b'x'; length]),
        1 => (60_usize..200).prop_map(|length| vec![b' '; length]),
        1 => (62_usize..67).prop_map(|depth| "{\"a\":".repeat(depth).into_bytes()),
    ]
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let end = prop_oneof![3 => Just(b"\n".as_slice()), 1 => Just(b"\r\n".as_slice())];
    (proptest::collection::vec((line(), end), 0..8), prop_oneof![4 => Just(Vec::new()), 1 => line()])
        .prop_map(|(lines, last)| {
            let mut bytes: Vec<u8> =
                lines.into_iter().flat_map(|(line, end)| [&line, end].concat()).collect();
            bytes.extend(last);
            bytes
        })
}

proptest! {
    #[test]
    fn every_split_in_two_gives_the_same_frames(bytes in stream()) {
        let whole = decode(80, [bytes.as_slice()]);
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            prop_assert_eq!(&decode(80, [head, tail]), &whole, "split at {}", at);
        }
        prop_assert_eq!(&decode(80, bytes.chunks(1)), &whole);
    }

    #[test]
    fn any_pieces_give_the_same_frames_within_bounds(
        bytes in stream(),
        sizes in proptest::collection::vec(1_usize..50, 1..20),
    ) {
        let mut pieces = Vec::new();
        let mut rest = bytes.as_slice();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, others) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece);
            rest = others;
        }
        prop_assert_eq!(decode(80, pieces.iter().copied()), decode(80, [bytes.as_slice()]));

        let mut decoder = Decoder::new(80);
        for piece in pieces {
            decoder.push(piece, |_| ());
            prop_assert!(decoder.held() <= 4096);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        decode(80, bytes.chunks(13));
    }
}
