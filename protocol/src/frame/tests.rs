use proptest::prelude::*;

use super::*;

type Outcome = Result<Vec<u8>, FrameError>;

/// What comes out when `pieces` arrive one after the other, taken after each.
fn decode<'a>(frame_max: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Outcome> {
    let mut decoder = Decoder::new(frame_max);
    let mut outcomes = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        outcomes.extend(decoder.by_ref());
    }
    if let Err(error) = decoder.finish() {
        outcomes.push(Err(error));
    }
    outcomes
}

fn one(bytes: &[u8]) -> Outcome {
    let mut outcomes = decode(FRAME_MAX_DEFAULT, [bytes]);
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    outcomes.remove(0)
}

#[test]
fn lines_become_frames() {
    let outcomes = decode(100, [b"{\"a\":1}\n\r\n  \n\n {\"b\":\"\\u0000\"}\r\n{}\n".as_slice()]);
    let frames: Vec<Vec<u8>> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(frames, [b"{\"a\":1}".to_vec(), b" {\"b\":\"\\u0000\"}".to_vec(), b"{}".to_vec()]);
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
    assert_eq!(outcomes[0], Ok(b"{}".to_vec()));
    assert!(outcomes[1].is_err());
    assert_eq!(outcomes[2], Ok(b"{\"a\":1}".to_vec()));
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
        assert_eq!(decode(100, [fits.as_bytes()]), [Ok(line(100).into_bytes())]);
        let over = line(101) + end + "{}" + end;
        assert_eq!(
            decode(100, [over.as_bytes()]),
            [Err(FrameError::TooLarge { limit: 100 }), Ok(b"{}".to_vec())]
        );
    }
}

#[test]
fn the_cap_holds_whatever_is_asked_for() {
    assert_eq!(Decoder::new(usize::MAX).frame_max, FRAME_MAX_CAP);
}

#[test]
fn a_line_of_one_gib_is_reported_at_once_and_once_and_never_held() {
    let piece = [b'x'; 8192];
    let mut decoder = Decoder::new(FRAME_MAX_FLOOR);
    let (mut errors, mut most) = (0, 0);
    for pushed in 1..=(1 << 30) / piece.len() {
        decoder.push(&piece);
        most = most.max(decoder.held());
        for outcome in decoder.by_ref() {
            assert_eq!(outcome, Err(FrameError::TooLarge { limit: FRAME_MAX_FLOOR }));
            errors += 1;
            assert!(pushed * piece.len() <= FRAME_MAX_FLOOR + 2 * piece.len());
        }
    }
    assert_eq!(errors, 1);
    assert!(most <= FRAME_MAX_FLOOR + piece.len(), "{most}");
    decoder.push(b"\n{}\n");
    assert_eq!(decoder.next(), Some(Ok(b"{}".to_vec())));
    assert_eq!(decoder.finish(), Ok(()));
}

#[test]
fn an_endless_line_is_bounded_even_when_nothing_is_taken() {
    let mut decoder = Decoder::new(FRAME_MAX_FLOOR);
    decoder.push(b"{}\n");
    for _ in 0..10_000 {
        decoder.push(&[b'x'; 8192]);
    }
    assert!(decoder.held() <= FRAME_MAX_FLOOR + 8192);
    decoder.push(b"\n{\"a\":1}\n");
    let outcomes: Vec<Outcome> = decoder.by_ref().collect();
    let limit = FRAME_MAX_FLOOR;
    assert_eq!(
        outcomes,
        [Ok(b"{}".to_vec()), Err(FrameError::TooLarge { limit }), Ok(b"{\"a\":1}".to_vec())]
    );
}

#[test]
fn memory_of_a_large_frame_is_given_back() {
    let mut decoder = Decoder::new(FRAME_MAX_CAP);
    let line = format!("{{\"a\":\"{}\"}}\n", "x".repeat(FRAME_MAX_CAP - 8));
    decoder.push(line.as_bytes());
    assert_eq!(decoder.next().unwrap().unwrap().len(), FRAME_MAX_CAP);
    assert_eq!(decoder.next(), None);
    assert!(decoder.held() <= KEPT);
}

#[test]
fn the_end_of_the_stream_is_reported_once_and_forgives_blanks() {
    let mut decoder = Decoder::new(100);
    decoder.push(b"{}\n \r");
    assert_eq!(decoder.next(), Some(Ok(b"{}".to_vec())));
    assert_eq!(decoder.next(), None);
    assert_eq!(decoder.finish(), Ok(()));
    decoder.push(b"{\"half");
    assert_eq!(decoder.next(), None);
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
            decoder.push(piece);
            prop_assert!(decoder.held() <= 83 + 50);
            decoder.by_ref().for_each(drop);
        }
    }

    #[test]
    fn taking_late_gives_the_same_frames(bytes in stream()) {
        let mut decoder = Decoder::new(80);
        bytes.chunks(7).for_each(|piece| decoder.push(piece));
        let mut late: Vec<Outcome> = decoder.by_ref().collect();
        late.extend(decoder.finish().err().map(Err));
        prop_assert_eq!(late, decode(80, [bytes.as_slice()]));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        decode(80, bytes.chunks(13));
    }
}
