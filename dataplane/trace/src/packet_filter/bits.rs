//! Bytes of which each bit is known or not, and questions about them that have three answers: yes, no, and `None` where unknown bits decide.

/// Bytes with the bits that are known. Unknown bits are zero in the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    value: Vec<u8>,
    known: Vec<u8>,
}

impl Bits {
    pub(super) fn known(bytes: &[u8]) -> Self {
        Self { value: bytes.to_vec(), known: vec![0xff; bytes.len()] }
    }

    pub(super) fn unknown(length: usize) -> Self {
        Self { value: vec![0; length], known: vec![0; length] }
    }

    pub(super) fn len(&self) -> usize {
        self.value.len()
    }

    /// A part of them; what is behind the end is unknown.
    pub(super) fn part(&self, offset: usize, length: usize) -> Self {
        let of =
            |bytes: &[u8]| (offset..offset + length).map(|at| bytes.get(at).copied().unwrap_or(0)).collect();
        Self { value: of(&self.value), known: of(&self.known) }
    }

    /// Puts others in their place; what does not fit is left out.
    pub(super) fn set(&mut self, offset: usize, others: &Self) {
        let places = self.value.iter_mut().zip(&mut self.known).skip(offset);
        for ((value, known), (other, is_known)) in places.zip(others.value.iter().zip(&others.known)) {
            (*value, *known) = (*other, *is_known);
        }
    }

    /// Sets a byte of which these bits are known.
    pub(super) fn set_masked(&mut self, offset: usize, value: u8, known: u8) {
        self.set(offset, &Self { value: vec![value & known], known: vec![known] });
    }

    pub(super) fn forget(&mut self, offset: usize, length: usize) {
        self.set(offset, &Self::unknown(length));
    }

    /// `(self & mask) ^ xor`: a bit that the mask clears is known.
    pub(super) fn masked(&self, mask: &[u8], xor: &[u8]) -> Self {
        let mut masked = self.clone();
        for ((value, known), (mask, xor)) in
            masked.value.iter_mut().zip(&mut masked.known).zip(mask.iter().zip(xor))
        {
            *known |= !mask;
            *value = ((*value & mask) ^ xor) & *known;
        }
        masked
    }

    pub(super) fn equals(&self, bytes: &[u8]) -> Option<bool> {
        let mut pairs = self.value.iter().zip(&self.known).zip(bytes);
        let differ = pairs.any(|((value, known), byte)| value != &(byte & known));
        match differ {
            true => Some(false),
            false => {
                (self.len() == bytes.len() && self.known.iter().all(|known| *known == 0xff)).then_some(true)
            }
        }
    }

    /// Whether they come at or behind `bytes` in the order of memcmp(3).
    pub(super) fn at_least(&self, bytes: &[u8]) -> Option<bool> {
        match () {
            () if self.value.as_slice() >= bytes => Some(true),
            () if self.highest().as_slice() < bytes => Some(false),
            () => None,
        }
    }

    /// Whether they come at or before `bytes`.
    pub(super) fn at_most(&self, bytes: &[u8]) -> Option<bool> {
        match () {
            () if self.highest().as_slice() <= bytes => Some(true),
            () if self.value.as_slice() > bytes => Some(false),
            () => None,
        }
    }

    fn highest(&self) -> Vec<u8> {
        self.value.iter().zip(&self.known).map(|(value, known)| value | !known).collect()
    }
}

/// Whether both are so.
pub(super) fn both(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each answer holds for each value that the unknown bits may have.
        #[test]
        fn answers_hold_for_whatever_is_unknown(
            value in any::<[u8; 2]>(), known in any::<[u8; 2]>(), hidden in any::<[u8; 2]>(),
            other in any::<[u8; 2]>(), mask in any::<[u8; 2]>(),
        ) {
            let mix = |at: usize| (value[at] & known[at]) | (hidden[at] & !known[at]);
            let real = [mix(0), mix(1)];
            let mut bits = Bits::unknown(2);
            bits.set_masked(0, value[0], known[0]);
            bits.set_masked(1, value[1], known[1]);
            let holds = |answer: Option<bool>, truth: bool| answer.is_none_or(|answer| answer == truth);
            for near in [other, real, [real[0], other[1]]] {
                prop_assert!(holds(bits.equals(&near), real == near));
                prop_assert!(holds(bits.at_least(&near), real >= near));
                prop_assert!(holds(bits.at_most(&near), real <= near));
            }
            let masked = [(real[0] & mask[0]) ^ other[0], (real[1] & mask[1]) ^ other[1]];
            prop_assert!(holds(bits.masked(&mask, &other).equals(&masked), true));
            prop_assert_eq!(bits.masked(&known, &[0; 2]).equals(&bits.value), Some(true));
        }
    }

    #[test]
    fn what_is_behind_the_end_is_unknown() {
        let bits = Bits::known(&[1, 2]);
        assert_eq!(bits.part(1, 2).equals(&[2, 0]), None);
        assert_eq!(bits.part(1, 2).equals(&[3, 0]), Some(false));
        assert_eq!(bits.equals(&[1, 2, 3]), None);
    }
}
