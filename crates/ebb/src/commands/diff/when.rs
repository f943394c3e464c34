//! The times of `--before` and `--after`: moments, days and ranges in the zone of this machine.

use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Timestamp, ZonedDateTime};

use crate::arguments;

/// From here to there; without an end all that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
}

/// What an argument means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Moment(Timestamp),
    Range(Span),
}

const FORMS: &str = "write a moment (14:00, 2026-11-24T14:00, 17h for 17 hours ago), a day (2026-11-24, yesterday) \
                     or FROM..TO";

/// The two periods. One argument is enough: the other period is the rest on its other side.
pub fn periods(before: Option<&str>, after: Option<&str>, now: &ZonedDateTime) -> Result<(Span, Span), String> {
    let when = |text: Option<&str>| text.map(|text| parse(text, now)).transpose();
    let before = when(before)?.map(|when| match when {
        When::Moment(to) => Span { from: None, to: Some(to) },
        When::Range(span) => span,
    });
    let after = when(after)?.map(|when| match when {
        When::Moment(from) => Span { from: Some(from), to: None },
        When::Range(span) => span,
    });
    let (before, after) = match (before, after) {
        (Some(before), Some(after)) => (before, after),
        (Some(before), None) => (before, Span { from: before.to, to: None }),
        (None, Some(after)) => (Span { from: None, to: after.from }, after),
        (None, None) => {
            return Err("which periods? --after 14:00 compares with all before it".to_owned());
        }
    };
    let overlap = |one: Span, other: Span| {
        let starts = |span: Span| span.from.unwrap_or(Timestamp::MIN);
        let ends = |span: Span| span.to.unwrap_or(Timestamp::MAX);
        starts(one) < ends(other) && starts(other) < ends(one)
    };
    if overlap(before, after) {
        return Err("the two periods overlap".to_owned());
    }
    Ok((before, after))
}

fn parse(text: &str, now: &ZonedDateTime) -> Result<When, String> {
    if let Some((from, to)) = text.split_once("..") {
        let end = |text: &str| (!text.is_empty()).then(|| point(text, now)).transpose();
        let span = Span { from: end(from)?.map(|it| it.0), to: end(to)?.map(|it| it.1) };
        return match (span.from, span.to) {
            (None, None) => Err(format!("\"{text}\" has no end: {FORMS}")),
            (Some(from), Some(to)) if from >= to => Err(format!("\"{text}\" ends before it begins")),
            _ => Ok(When::Range(span)),
        };
    }
    Ok(match point(text, now)? {
        (from, to) if from == to => When::Moment(from),
        (from, to) => When::Range(Span { from: Some(from), to: Some(to) }),
    })
}

/// A moment, twice, or the beginning and the end of a day.
fn point(text: &str, now: &ZonedDateTime) -> Result<(Timestamp, Timestamp), String> {
    let text = text.trim();
    let wrong = || format!("\"{text}\" is no time: {FORMS}");
    let zone = now.time_zone();
    let moment = |at: DateTime| at.to_zoned_datetime(zone.clone()).map(|it| it.timestamp());
    if text == "now" {
        return Ok((now.timestamp(), now.timestamp()));
    }
    let (word, time) = text.split_once([' ', 'T']).map_or((text, None), |it| (it.0, Some(it.1)));
    let date = match word {
        "today" => Some(now.date()),
        "yesterday" => now.date().yesterday().ok(),
        word => word.parse::<Date>().ok().filter(|_| word.len() == "2026-11-24".len()),
    };
    let found = match (date, time) {
        (Some(date), None) => {
            let next = date.tomorrow().map_err(|_| wrong())?;
            let midnight = |date: Date| moment(date.to_datetime(Time::midnight()));
            midnight(date).and_then(|from| Ok((from, midnight(next)?)))
        }
        // With an offset or in UTC.
        (Some(_), Some(_)) if text.parse::<Timestamp>().is_ok() => text.parse().map(|at: Timestamp| (at, at)),
        (Some(date), Some(time)) => {
            let time: Time = time.parse().map_err(|_| wrong())?;
            moment(date.to_datetime(time)).map(|at| (at, at))
        }
        (None, _) => match text.parse::<Time>().ok().filter(|_| text.contains(':')) {
            Some(time) => moment(now.date().to_datetime(time)).map(|at| (at, at)),
            None => {
                let ago = arguments::time(text).ok().filter(|_| !text.ends_with(|it: char| it.is_ascii_digit()));
                let ago = ago.and_then(|ago| SignedDuration::try_from(ago).ok());
                let ago = ago.ok_or_else(wrong)?;
                now.timestamp().checked_sub(ago).map(|at| (at, at))
            }
        },
    };
    found.map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> ZonedDateTime {
        "2026-11-25T16:30:00+01:00[Europe/Berlin]".parse().unwrap()
    }

    fn in_words(span: Span) -> String {
        let end = |at: Option<Timestamp>| at.map_or(String::new(), |at| at.to_string());
        format!("{}..{}", end(span.from), end(span.to))
    }

    #[test]
    fn times_are_local_and_a_missing_period_is_the_rest() {
        for (before, after, expected) in [
            (None, Some("14:00"), ["..2026-11-25T13:00:00Z", "2026-11-25T13:00:00Z.."]),
            (Some("14:00"), Some("14:00"), ["..2026-11-25T13:00:00Z", "2026-11-25T13:00:00Z.."]),
            (Some("yesterday"), None, ["2026-11-23T23:00:00Z..2026-11-24T23:00:00Z", "2026-11-24T23:00:00Z.."]),
            (
                Some("2026-11-23"),
                Some("today"),
                ["2026-11-22T23:00:00Z..2026-11-23T23:00:00Z", "2026-11-24T23:00:00Z..2026-11-25T23:00:00Z"],
            ),
            (
                Some("2026-11-20..2026-11-22"),
                Some("2026-11-24T14:00:00Z"),
                ["2026-11-19T23:00:00Z..2026-11-22T23:00:00Z", "2026-11-24T14:00:00Z.."],
            ),
            (None, Some("17h"), ["..2026-11-24T22:30:00Z", "2026-11-24T22:30:00Z.."]),
            (
                None,
                Some("yesterday 20:15..now"),
                ["..2026-11-24T19:15:00Z", "2026-11-24T19:15:00Z..2026-11-25T15:30:00Z"],
            ),
            (
                Some("..2026-11-24 12:00"),
                Some("2026-11-24T12:00.."),
                ["..2026-11-24T11:00:00Z", "2026-11-24T11:00:00Z.."],
            ),
            // The day on which summer time ends has 25 hours.
            (
                Some("2026-10-25"),
                Some("2026-10-26"),
                ["2026-10-24T22:00:00Z..2026-10-25T23:00:00Z", "2026-10-25T23:00:00Z..2026-10-26T23:00:00Z"],
            ),
        ] {
            let found = periods(before, after, &now()).map(|(before, after)| [in_words(before), in_words(after)]);
            assert_eq!(found, Ok(expected.map(str::to_owned)), "{before:?} {after:?}");
        }
    }

    #[test]
    fn what_is_no_period_is_refused() {
        for (before, after, expected) in [
            (None, None, "which periods"),
            (Some("noon"), None, "\"noon\" is no time: write a moment"),
            (None, Some("17"), "\"17\" is no time"),
            (None, Some("2026-13-01"), "is no time"),
            (None, Some("25:00"), "is no time"),
            (None, Some(".."), "has no end"),
            (None, Some("15:00..14:00"), "ends before it begins"),
            (Some("today"), Some("14:00"), "the two periods overlap"),
        ] {
            let error = periods(before, after, &now()).unwrap_err();
            assert!(error.contains(expected), "{before:?} {after:?}: {error}");
        }
    }
}
