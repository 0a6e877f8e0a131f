//! Numbers of samples in two bytes: exact up to 2047, and within 0.1 percent above.

/// Bits of the mantissa, without the leading one.
const MANTISSA: u32 = 10;

/// A count that is rounded to eleven significant bits. Of the 16 bits, the upper six are the exponent and the lower ten the mantissa, as in
/// a floating-point number: 0 to 2^63 fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Compact(u16);

impl From<u64> for Compact {
    fn from(count: u64) -> Self {
        let width = u64::BITS - count.leading_zeros();
        let Some(shift) = width.checked_sub(MANTISSA + 1) else {
            // Small counts stand for themselves, as do the first exponents of denormal numbers.
            return Self(u16::try_from(count).unwrap_or(u16::MAX));
        };
        // Half of the last bit that stays, so that sums of many samples are not too small.
        let rounded = (count >> shift) + ((count >> shift.saturating_sub(1)) & u64::from(shift > 0));
        let (rounded, shift) =
            if rounded >> (MANTISSA + 1) > 0 { (rounded >> 1, shift + 1) } else { (rounded, shift) };
        let mantissa = rounded & ((1 << MANTISSA) - 1);
        let packed = (u64::from(shift + 1) << MANTISSA) | mantissa;
        Self(u16::try_from(packed).unwrap_or(u16::MAX))
    }
}

impl From<Compact> for u64 {
    fn from(Compact(packed): Compact) -> Self {
        let (exponent, mantissa) = (packed >> MANTISSA, Self::from(packed) & ((1 << MANTISSA) - 1));
        match exponent.checked_sub(1) {
            None => mantissa,
            Some(shift) => ((1 << MANTISSA) | mantissa).checked_shl(shift.into()).unwrap_or(Self::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn through(count: u64) -> u64 {
        Compact::from(count).into()
    }

    #[test]
    fn small_counts_are_exact() {
        assert!((0..2048).all(|count| through(count) == count));
    }

    proptest! {
        #[test]
        fn others_are_off_by_a_thousandth_at_most(bits in 0_u32..63, noise: u64) {
            let count = (1 << bits) | (noise & ((1 << bits) - 1));
            let error = through(count).abs_diff(count);
            prop_assert!(error <= count / 1000, "{count} became {}", through(count));
        }

        #[test]
        fn larger_counts_stay_larger(one in 0_u64..1 << 62, more in 0_u64..1 << 61) {
            prop_assert!(through(one) <= through(one + more));
        }
    }
}
