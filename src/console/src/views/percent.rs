//! Percentages that add up to 100.

/// Percentage of each part. All are rounded down, and the missing points go to the parts with the largest remainders, earlier ones
/// first. All are 0 if the sum is 0.
pub(crate) fn of_parts(parts: &[u64]) -> Vec<u8> {
    let total: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    if total == 0 {
        return vec![0; parts.len()];
    }
    let hundredfold = |part: &u64| 100 * u128::from(*part);
    let mut percent: Vec<u8> =
        parts.iter().map(|part| u8::try_from(hundredfold(part) / total).unwrap_or(100)).collect();
    let missing = 100 - percent.iter().map(|it| usize::from(*it)).sum::<usize>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(hundredfold(&parts[*index]) % total));
    order.into_iter().take(missing).for_each(|index| percent[index] += 1);
    percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_a_hundred() {
        assert_eq!(of_parts(&[1, 1, 1]), [34, 33, 33]);
        // Rounding each part would result in 102.
        assert_eq!(of_parts(&[1665, 1665, 1665, 1665, 1665, 1675]), [17, 17, 17, 16, 16, 17]);
        assert_eq!(of_parts(&[3, 1, 0]), [75, 25, 0]);
        assert_eq!(of_parts(&[7]), [100]);
        assert_eq!(of_parts(&[0, 0]), [0, 0]);
        assert_eq!(of_parts(&[]), [0; 0]);
        assert_eq!(of_parts(&[u64::MAX, u64::MAX]), [50, 50]);
        for count in 1..300_u64 {
            let parts: Vec<u64> = (0..count).map(|index| index * index + 1).collect();
            assert_eq!(of_parts(&parts).into_iter().map(u64::from).sum::<u64>(), 100, "{count}");
        }
    }
}
