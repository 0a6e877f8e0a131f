//! What a row has opened within the last two minutes, in little memory, and as bars of text.

/// Number of samples, each as wide as one bar.
pub(super) const SAMPLES: usize = 30;
/// Milliseconds of each sample, in the uptime of the gateway.
const SAMPLE: u64 = 4_000;
/// Bars from lowest to highest.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Samples in a ring, in which the time decides the place. A row at rest needs no work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Recent {
    samples: [f32; SAMPLES],
    /// Number of the newest sample, counted from the start of the gateway.
    newest: u64,
}

impl Recent {
    /// Counts what was opened until this moment.
    pub(super) fn add(&mut self, uptime: u64, opened: f64) {
        let now = uptime / SAMPLE;
        if now < self.newest {
            // The gateway was restarted.
            *self = Self::default();
        }
        let passed = (now - self.newest).min(SAMPLES as u64);
        (0..passed).for_each(|back| self.samples[place(now - back)] = 0.0);
        self.newest = now;
        self.samples[place(now)] += opened as f32;
    }

    /// Draws the newest samples as of this moment, up to `width`. A sample without anything is blank, and the highest bar is the most of any
    /// sample that is shown.
    pub(super) fn bars(&self, uptime: u64, width: usize) -> String {
        let now = uptime / SAMPLE;
        let sample = |back: u64| {
            let number = now.checked_sub(back)?;
            // A gateway that was restarted begins with a smaller uptime.
            let known = number <= self.newest && self.newest <= now && self.newest - number < SAMPLES as u64;
            known.then(|| self.samples[place(number)])
        };
        let shown = (0..width.min(SAMPLES) as u64).rev();
        let shown: Vec<f32> = shown.map(|back| sample(back).unwrap_or_default()).collect();
        bars(&shown)
    }
}

fn place(number: u64) -> usize {
    (number % SAMPLES as u64) as usize
}

/// Draws numbers as bars, relative to the greatest one; nothing is blank.
pub(super) fn bars(numbers: &[f32]) -> String {
    let most = numbers.iter().copied().fold(0.0, f32::max);
    let bar = |number: &f32| match (number / most * BARS.len() as f32).ceil() as usize {
        _ if *number <= 0.0 => ' ',
        height => BARS[height.clamp(1, BARS.len()) - 1],
    };
    numbers.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_the_last_two_minutes() {
        let mut recent = Recent::default();
        recent.add(400_000, 8.0);
        recent.add(402_000, 8.0);
        recent.add(404_000, 2.0);
        recent.add(412_500, 9.0);
        assert_eq!(recent.bars(412_900, 30).trim_start(), "█▁ ▅");
        assert_eq!(recent.bars(412_900, 30).chars().count(), 30);
        // The scale is that of what is shown, and time passes without traffic.
        assert_eq!(recent.bars(416_000, 4), "▂ █ ");
        assert_eq!(recent.bars(412_000 + 29 * SAMPLE, 30), format!("█{}", " ".repeat(29)));
        assert_eq!(recent.bars(412_000 + 30 * SAMPLE, 30).trim(), "");
        recent.add(412_000 + 40 * SAMPLE, 1.0);
        assert_eq!(recent.bars(412_000 + 40 * SAMPLE, 30).trim(), "█", "what is older is forgotten");
    }

    #[test]
    fn a_restarted_gateway_begins_anew() {
        let mut recent = Recent::default();
        recent.add(400_000, 8.0);
        assert_eq!(recent.bars(1_000, 5).trim(), "", "an uptime of before");
        recent.add(1_000, 3.0);
        assert_eq!(recent.bars(1_000, 5), "    █");
        assert_eq!(bars(&[f32::MAX, f32::NAN, 0.0, 1e-30]), "█▁ ▁");
    }
}
