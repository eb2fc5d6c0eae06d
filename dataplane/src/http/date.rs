//! The `Date` field (RFC 9110 §5.6.7), written at most once a second.

use std::cell::Cell;

use crate::clock;

/// `Tue, 15 Nov 1994 08:12:31 GMT`
pub type Date = [u8; 29];

/// The wall clock now.
pub(super) fn now() -> Date {
    thread_local! {
        static LAST: Cell<(u64, Date)> = const { Cell::new((0, [b' '; 29])) };
    }
    let seconds = clock::unix_seconds();
    let (at, date) = LAST.get();
    if at == seconds {
        return date;
    }
    let date = format(seconds);
    LAST.set((seconds, date));
    date
}

/// A moment in seconds since the epoch.
pub fn format(unix_seconds: u64) -> Date {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Years begin in March here, so that the leap day is the last one; eras of 400 years repeat exactly.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = era * 400 + year + u64::from(month < 2);
    let name = |names: &'static [&'static str], index: u64| {
        usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or_default()
    };
    let text = format!(
        "{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT",
        name(&DAYS, days % 7),
        day_of_month,
        name(&MONTHS, month),
        year % 10_000,
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    text.as_bytes().try_into().unwrap_or([b' '; 29])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_887_151, "Tue, 15 Nov 1994 08:12:31 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&format(seconds)).unwrap(), text);
        }
    }

    #[test]
    fn the_clock_is_asked_for_the_current_date() {
        assert!(now().ends_with(b" GMT"));
        assert_eq!(now()[3], b',');
    }
}
