//! Advantages: of whole trajectories within their group, and token by token on ragged rows.
//!
//! Rows are trajectories laid end to end. `lengths` gives the length of each, `mask` marks the sampled tokens. A kernel
//! treats the sampled tokens of a row as neighbors: observations between them are ignored, regardless of their values,
//! and get 0. Sums are in float64 and taken row by row, the rows' sums in ascending order, so that no bit depends on
//! the order of the trajectories.

use std::collections::HashMap;

use crate::error::{InvalidInput, Result, invalid};

/// Added to the standard deviation (verl `core_algos.py`).
const EPSILON: f64 = 1e-6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// (r - mean) / (std + 1e-6) with the unbiased standard deviation.
    Grpo,
    /// r - mean.
    DrGrpo,
    /// r - the mean of the others.
    Rloo,
}

impl Estimator {
    pub const NAMES: [&str; 3] = ["grpo", "dr_grpo", "rloo"];
}

impl std::str::FromStr for Estimator {
    type Err = InvalidInput;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "grpo" => Ok(Self::Grpo),
            "dr_grpo" => Ok(Self::DrGrpo),
            "rloo" => Ok(Self::Rloo),
            _ => invalid(format!(
                "estimator {name:?} is unknown; choose one of {}",
                Self::NAMES.join(", ")
            )),
        }
    }
}

/// Returns one advantage for each trajectory; `groups[i]` is the group of trajectory i, in any order.
///
/// A group of one has no baseline: it uses mean 0 and standard deviation 1, as in verl. The result does not depend on
/// the order of the trajectories, not even in its last bit, and a group of equal rewards gets exactly 0.
///
/// # Errors
/// Different lengths, a reward that is not finite, or rewards so large or far apart that an advantage is not finite.
pub fn group_advantages(estimator: Estimator, rewards: &[f64], groups: &[i64]) -> Result<Vec<f32>> {
    if rewards.len() != groups.len() {
        return invalid(format!(
            "{} rewards with {} group ids: each needs one",
            rewards.len(),
            groups.len()
        ));
    }
    if let Some(index) = rewards.iter().position(|reward| !reward.is_finite()) {
        return invalid(format!(
            "reward {index} is {}: rewards must be finite",
            rewards[index]
        ));
    }
    let mut members: HashMap<i64, Vec<f64>> = HashMap::new();
    for (&group, &reward) in groups.iter().zip(rewards) {
        members.entry(group).or_default().push(reward);
    }
    let baselines: HashMap<i64, Baseline> = members
        .into_iter()
        .map(|(group, rewards)| (group, Baseline::of(estimator, rewards)))
        .collect();
    let advantages: Vec<f32> = groups
        .iter()
        .zip(rewards)
        .map(|(group, &reward)| baselines[group].advantage(reward))
        .collect();
    match advantages.iter().position(|value| !value.is_finite()) {
        Some(index) => invalid(format!(
            "the advantage of trajectory {index} is {}: its reward {} is too far from those of its group",
            advantages[index], rewards[index]
        )),
        None => Ok(advantages),
    }
}

/// The baseline of a group: the advantage is (reward - mean) * scale.
struct Baseline {
    mean: f64,
    scale: f64,
}

impl Baseline {
    fn of(estimator: Estimator, mut rewards: Vec<f64>) -> Self {
        let count = rewards.len() as f64;
        if rewards.len() == 1 {
            let scale = if estimator == Estimator::Grpo {
                1.0 / (1.0 + EPSILON)
            } else {
                1.0
            };
            return Self { mean: 0.0, scale };
        }
        // Sorted, the sums do not depend on the order of the group; taken from the smallest, equal rewards
        // have exactly their own value as the mean.
        rewards.sort_by(f64::total_cmp);
        let smallest = rewards[0];
        let mean = smallest + rewards.iter().map(|reward| reward - smallest).sum::<f64>() / count;
        let scale = match estimator {
            Estimator::Grpo => {
                let squares: f64 = rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
                let deviation = (squares / (count - 1.0)).sqrt();
                // The squares overflow before the rewards do. Divided by infinity, every advantage would be 0.
                if deviation.is_finite() {
                    1.0 / (deviation + EPSILON)
                } else {
                    f64::NAN
                }
            }
            Estimator::DrGrpo => 1.0,
            // r - (n * mean - r) / (n - 1) = (r - mean) * n / (n - 1)
            Estimator::Rloo => count / (count - 1.0),
        };
        Self { mean, scale }
    }

    fn advantage(&self, reward: f64) -> f32 {
        ((reward - self.mean) * self.scale) as f32
    }
}

/// Added to the variance before its root (verl `masked_whiten`).
const WHITENING_EPSILON: f64 = 1e-8;

/// Mask of the sampled tokens of trajectories laid end to end, and the end of each trajectory.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    lengths: &'a [i64],
    mask: &'a [bool],
}

impl<'a> Rows<'a> {
    pub fn new(lengths: &'a [i64], mask: &'a [bool]) -> Result<Self> {
        if let Some(row) = lengths.iter().position(|&length| length < 0) {
            return invalid(format!("row {row} has {} tokens", lengths[row]));
        }
        let total: i128 = lengths.iter().map(|&length| i128::from(length)).sum();
        if total != mask.len() as i128 {
            return invalid(format!(
                "rows of {total} tokens in all, but a mask of {}",
                mask.len()
            ));
        }
        Ok(Self { lengths, mask })
    }

    fn check_rewards(&self, rewards: &[f64]) -> Result<()> {
        if rewards.len() != self.lengths.len() {
            return invalid(format!(
                "{} rewards for {} rows",
                rewards.len(),
                self.lengths.len()
            ));
        }
        match rewards.iter().position(|reward| !reward.is_finite()) {
            Some(row) => invalid(format!(
                "reward {row} is {}: rewards must be finite",
                rewards[row]
            )),
            None => Ok(()),
        }
    }

    fn check_tokens(&self, name: &str, values: &[f32]) -> Result<()> {
        if values.len() != self.mask.len() {
            return invalid(format!(
                "{} {name} for {} tokens",
                values.len(),
                self.mask.len()
            ));
        }
        Ok(())
    }

    /// The range of each row in the flat arrays.
    fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + 'a {
        let mut start = 0;
        self.lengths.iter().map(move |&length| {
            let range = start..start + length as usize;
            start = range.end;
            range
        })
    }
}

/// Repeats one value per row on its sampled tokens; all other tokens get 0.
pub fn broadcast_to_tokens(values: &[f64], rows: Rows<'_>) -> Result<Vec<f32>> {
    rows.check_rewards(values)?;
    let mut tokens = Vec::with_capacity(rows.mask.len());
    for (range, &value) in rows.ranges().zip(values) {
        let value = value as f32;
        tokens.extend(
            rows.mask[range]
                .iter()
                .map(|&sampled| if sampled { value } else { 0.0 }),
        );
    }
    Ok(tokens)
}

/// The sum of each row over its sampled tokens.
pub fn row_sums(values: &[f32], rows: Rows<'_>) -> Result<Vec<f64>> {
    rows.check_tokens("values", values)?;
    Ok(rows
        .ranges()
        .map(|range| masked_sum(&values[range.clone()], &rows.mask[range], f64::from))
        .collect())
}

/// Discounted returns: G_k = r_k + discount * G_(k+1) over the sampled tokens k of a row.
///
/// A row's reward arrives at its last sampled token; `token_rewards` (a KL penalty), if set, are added at their own
/// tokens.
pub fn discounted_returns(
    rewards: &[f64],
    token_rewards: Option<&[f32]>,
    rows: Rows<'_>,
    discount: f64,
) -> Result<Vec<f32>> {
    rows.check_rewards(rewards)?;
    if let Some(token_rewards) = token_rewards {
        rows.check_tokens("token rewards", token_rewards)?;
    }
    let mut returns = vec![0.0; rows.mask.len()];
    for (range, &reward) in rows.ranges().zip(rewards) {
        let mut arriving = reward;
        let mut next = 0.0;
        for token in range.rev().filter(|&token| rows.mask[token]) {
            let own = token_rewards.map_or(0.0, |rewards| f64::from(rewards[token]));
            next = own + std::mem::take(&mut arriving) + discount * next;
            returns[token] = next as f32;
        }
    }
    Ok(returns)
}

/// Generalized advantage estimation over the sampled tokens k of each row, and the returns A_k + V_k.
///
/// A_k = d_k + discount * lambda * A_(k+1) with d_k = r_k + discount * V_(k+1) - V_k, where k + 1 is the next *sampled*
/// token, regardless of the number of observed tokens between, and V is 0 after the last. Rewards as in
/// `discounted_returns`.
pub fn generalized_advantages(
    rewards: &[f64],
    token_rewards: Option<&[f32]>,
    values: &[f32],
    rows: Rows<'_>,
    discount: f64,
    lambda: f64,
) -> Result<(Vec<f32>, Vec<f32>)> {
    rows.check_rewards(rewards)?;
    rows.check_tokens("values", values)?;
    if let Some(token_rewards) = token_rewards {
        rows.check_tokens("token rewards", token_rewards)?;
    }
    let mut advantages = vec![0.0; rows.mask.len()];
    let mut returns = vec![0.0; rows.mask.len()];
    for (range, &reward) in rows.ranges().zip(rewards) {
        let mut arriving = reward;
        let (mut next_advantage, mut next_value) = (0.0, 0.0);
        for token in range.rev().filter(|&token| rows.mask[token]) {
            let own = token_rewards.map_or(0.0, |rewards| f64::from(rewards[token]));
            let value = f64::from(values[token]);
            let error = own + std::mem::take(&mut arriving) + discount * next_value - value;
            next_advantage = error + discount * lambda * next_advantage;
            next_value = value;
            advantages[token] = next_advantage as f32;
            returns[token] = (next_advantage + value) as f32;
        }
    }
    Ok((advantages, returns))
}

/// Normalizes values to mean 0 and (unbiased) variance 1 over all sampled tokens of all rows; other tokens get 0.
///
/// A single sampled token gets 0, because it has no baseline.
///
/// # Errors
/// Another number of values than of tokens, or a value of a sampled token that is not finite.
pub fn whiten(values: &[f32], rows: Rows<'_>) -> Result<Vec<f32>> {
    rows.check_tokens("values", values)?;
    let sampled = values.iter().zip(rows.mask);
    if let Some(token) = sampled
        .clone()
        .position(|(value, &sampled)| sampled && !value.is_finite())
    {
        return invalid(format!(
            "the value of the sampled token {token} is {}: values must be finite",
            values[token]
        ));
    }
    let count = rows.mask.iter().filter(|&&sampled| sampled).count() as f64;
    let total = |of: &dyn Fn(&[f32], &[bool]) -> f64| {
        let mut sums: Vec<f64> = rows
            .ranges()
            .map(|range| of(&values[range.clone()], &rows.mask[range]))
            .collect();
        sums.sort_by(f64::total_cmp);
        sums.iter().sum::<f64>()
    };
    // Relative to one of them, equal values have exactly that value as the mean.
    let first = |mut range: std::ops::Range<usize>| range.find(|&token| rows.mask[token]);
    let origin = rows
        .ranges()
        .filter_map(first)
        .map(|token| f64::from(values[token]))
        .fold(f64::INFINITY, f64::min);
    let above = |value| f64::from(value) - origin;
    let mean = origin + total(&|values, mask| masked_sum(values, mask, above)) / count.max(1.0);
    let squares =
        total(&|values, mask| masked_sum(values, mask, |value| (f64::from(value) - mean).powi(2)));
    let scale = 1.0 / (squares / (count - 1.0).max(1.0) + WHITENING_EPSILON).sqrt();
    let whitened =
        sampled.map(|(&value, &sampled)| gate((f64::from(value) - mean) * scale, sampled) as f32);
    Ok(whitened.collect())
}

/// `whiten` for values that are constant on the sampled tokens of a row: one value per row, weighted by its tokens.
/// Rows without sampled tokens have no influence on the others.
///
/// # Errors
/// Another number of values than of rows, a value that is not finite, or values too large or far apart to be whitened.
pub fn whiten_rows(values: &[f64], rows: Rows<'_>) -> Result<Vec<f64>> {
    rows.check_rewards(values)?;
    let counts: Vec<f64> = rows
        .ranges()
        .map(|range| {
            rows.mask[range]
                .iter()
                .map(|&sampled| u64::from(sampled))
                .sum::<u64>() as f64
        })
        .collect();
    let weighted = |of: &dyn Fn(f64) -> f64| {
        let mut sums: Vec<f64> = values
            .iter()
            .zip(&counts)
            .filter(|&(_, &count)| count > 0.0)
            .map(|(&value, count)| of(value) * count)
            .collect();
        sums.sort_by(f64::total_cmp);
        sums.iter().sum::<f64>()
    };
    let count: f64 = counts.iter().sum();
    // Relative to one of them, equal values have exactly that value as the mean.
    let sampled = values
        .iter()
        .zip(&counts)
        .filter(|&(_, &count)| count > 0.0);
    let origin = sampled
        .map(|(&value, _)| value)
        .fold(f64::INFINITY, f64::min);
    let origin = if count > 0.0 { origin } else { 0.0 };
    let mean = origin + weighted(&|value| value - origin) / count.max(1.0);
    let squares = weighted(&|value| (value - mean).powi(2));
    if !squares.is_finite() {
        return invalid("the values are too large or too far apart to be whitened");
    }
    let scale = 1.0 / (squares / (count - 1.0).max(1.0) + WHITENING_EPSILON).sqrt();
    Ok(values.iter().map(|value| (value - mean) * scale).collect())
}

/// Returns `value` if the token was sampled, else 0. Without a branch, which no processor could predict.
fn gate(value: f64, sampled: bool) -> f64 {
    f64::from_bits(value.to_bits() & u64::from(sampled).wrapping_neg())
}

/// The sum of `of(value)` over the masked tokens, in a fixed order that the compiler can vectorize.
fn masked_sum(values: &[f32], mask: &[bool], of: impl Fn(f32) -> f64) -> f64 {
    const LANES: usize = 8;
    let mut lanes = [0.0; LANES];
    let (value_chunks, mask_chunks) = (values.chunks_exact(LANES), mask.chunks_exact(LANES));
    let rest = value_chunks.remainder().iter().zip(mask_chunks.remainder());
    let rest: f64 = rest
        .map(|(&value, &sampled)| gate(of(value), sampled))
        .sum();
    for (values, mask) in value_chunks.zip(mask_chunks) {
        for lane in 0..LANES {
            lanes[lane] += gate(of(values[lane]), mask[lane]);
        }
    }
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row with an observation between its sampled tokens and one after them, and one row without sampled tokens.
    const LENGTHS: [i64; 2] = [6, 2];
    const MASK: [bool; 8] = [true, false, true, true, false, false, false, false];

    fn rows() -> Rows<'static> {
        Rows::new(&LENGTHS, &MASK).unwrap()
    }

    #[test]
    fn returns_by_hand() {
        let token_rewards = [0.5, 9.0, -1.0, 0.0, 9.0, 9.0, 9.0, 9.0];
        // After the observation: 4; then -1 + 4 / 2 = 1; before it 0.5 + 1 / 2 = 1.
        let returns = discounted_returns(&[4.0, 7.0], Some(&token_rewards), rows(), 0.5).unwrap();
        assert_eq!(returns, [1.0, 0.0, 1.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
        let undiscounted = discounted_returns(&[4.0, 7.0], None, rows(), 1.0).unwrap();
        assert_eq!(
            undiscounted,
            broadcast_to_tokens(&[4.0, 7.0], rows()).unwrap()
        );
    }

    #[test]
    fn generalized_advantages_by_hand() {
        let values = [1.0, 50.0, 2.0, 3.0, 50.0, 50.0, 50.0, 50.0];
        let (advantages, returns) =
            generalized_advantages(&[4.0, 7.0], None, &values, rows(), 0.5, 0.5).unwrap();
        // Errors: 4 - 3 = 1; 3 / 2 - 2 = -1/2; 2 / 2 - 1 = 0. Advantages: 1; -1/2 + 1/4 = -1/4; 0 - 1/16.
        assert_eq!(advantages, [-0.0625, 0.0, -0.25, 1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(returns, [0.9375, 0.0, 1.75, 4.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn whitening_by_hand() {
        // 1, 2, 3: mean 2, unbiased variance 1.
        let values = [1.0, 50.0, 2.0, 3.0, f32::NAN, 50.0, 50.0, 50.0];
        let whitened = whiten(&values, rows()).unwrap();
        assert_eq!(whitened, [-1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        let alone = Rows::new(&[1], &[true]).unwrap();
        assert_eq!(whiten(&[5.0], alone).unwrap(), [0.0]);
        let equal = Rows::new(&[3, 4], &[true; 7]).unwrap();
        assert_eq!(whiten(&[0.1; 7], equal).unwrap(), [0.0; 7]);
        assert_eq!(whiten(&[], Rows::new(&[], &[]).unwrap()).unwrap(), [0.0; 0]);
    }

    #[test]
    fn rows_of_one_value_are_whitened_alike() {
        let (lengths, mask) = ([3, 1, 2], [true, false, true, true, false, false]);
        let rows = Rows::new(&lengths, &mask).unwrap();
        // 1, 1, 4: mean 2, unbiased variance 3; the row without sampled tokens is ignored.
        let whitened = whiten_rows(&[1.0, 4.0, 9.0], rows).unwrap();
        assert!((whitened[0] + 1.0 / 3f64.sqrt()).abs() < 1e-8);
        assert!((whitened[1] - 2.0 / 3f64.sqrt()).abs() < 1e-8);
        assert_eq!(whiten_rows(&[0.1; 3], rows).unwrap(), [0.0; 3]);
        // Not even in the last bit: it is not what the sums are relative to.
        for ignored in [-1e300, -1e6, 0.0, 1e300] {
            let equal = whiten_rows(&[0.1, 0.1, ignored], rows).unwrap();
            assert_eq!(equal[..2], [0.0; 2], "{ignored}");
        }
        let none = Rows::new(&[1], &[false]).unwrap();
        assert_eq!(whiten_rows(&[0.0], none).unwrap(), [0.0]);
    }

    #[test]
    fn row_sums_by_hand() {
        let values = [1.0, 50.0, 2.0, 3.0, 50.0, 50.0, 50.0, 50.0];
        assert_eq!(row_sums(&values, rows()).unwrap(), [6.0, 0.0]);
    }

    #[test]
    fn rewards_with_squares_beyond_f64_are_refused() {
        let far = group_advantages(Estimator::Grpo, &[1e150, -1e150], &[0, 0]).unwrap();
        assert!((far[0] - 0.5f32.sqrt()).abs() < 1e-6 && far[0] == -far[1]);
        let error =
            group_advantages(Estimator::Grpo, &[1.0, 1e200, -1e200], &[1, 0, 0]).unwrap_err();
        assert!(error.0.contains("trajectory 1 is NaN"), "{}", error.0);
    }

    #[test]
    fn ragged_refusals() {
        assert!(Rows::new(&[1, -1], &[]).unwrap_err().0.contains("row 1"));
        assert!(
            Rows::new(&[3], &[true])
                .unwrap_err()
                .0
                .contains("a mask of 1")
        );
        assert!(broadcast_to_tokens(&[1.0], rows()).is_err());
        assert!(
            whiten(&[1.0], rows())
                .unwrap_err()
                .0
                .contains("1 values for 8")
        );
        assert!(discounted_returns(&[f64::NAN, 0.0], None, rows(), 1.0).is_err());
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let values = [1.0, 0.0, value, 0.0, 0.0, 0.0, 0.0, 0.0];
            let refusal = whiten(&values, rows()).unwrap_err().0;
            assert!(refusal.contains("sampled token 2 is"), "{refusal}");
        }
        let both = Rows::new(&[1, 1], &[true; 2]).unwrap();
        assert!(whiten_rows(&[1e308, -1e308], both).is_err());
        assert!(discounted_returns(&[0.0, 0.0], Some(&[0.0]), rows(), 1.0).is_err());
    }

    #[test]
    fn by_hand() {
        let (rewards, groups) = ([1.0, -1.0, -1.0, 1.0, -1.0], [5, 5, 5, 2, 5]);
        // Group 5: 1, -1, -1, -1: mean -0.5, unbiased variance (2.25 + 3 * 0.25) / 3 = 1.
        let scale = 1.0 / (1.0 + 1e-6);
        let expected = [1.5, -0.5, -0.5, 1.0, -0.5].map(|value| (value * scale) as f32);
        assert_eq!(
            group_advantages(Estimator::Grpo, &rewards, &groups).unwrap(),
            expected
        );
        assert_eq!(
            group_advantages(Estimator::DrGrpo, &rewards, &groups).unwrap(),
            [1.5, -0.5, -0.5, 1.0, -0.5]
        );
        let rloo = group_advantages(Estimator::Rloo, &rewards, &groups).unwrap();
        assert_eq!(rloo, [2.0, -2.0 / 3.0, -2.0 / 3.0, 1.0, -2.0 / 3.0]);
    }

    #[test]
    fn no_bit_depends_on_the_order_of_a_group() {
        let rewards = [0.1, 1e16, 0.7, -1e16, 3.0, 1e-9]; // a sum that depends on the order
        let groups = [5; 6];
        for estimator in [Estimator::Grpo, Estimator::DrGrpo, Estimator::Rloo] {
            let whole = group_advantages(estimator, &rewards, &groups).unwrap();
            for shift in 1..rewards.len() {
                let mut turned = rewards;
                turned.rotate_left(shift);
                let mut advantages = group_advantages(estimator, &turned, &groups).unwrap();
                advantages.rotate_right(shift);
                assert_eq!(advantages, whole, "{estimator:?}, {shift}");
            }
        }
    }

    #[test]
    fn equal_rewards_carry_no_signal() {
        for estimator in Estimator::NAMES {
            let advantages =
                group_advantages(estimator.parse().unwrap(), &[0.1; 7], &[0; 7]).unwrap();
            assert_eq!(advantages, [0.0; 7]);
        }
    }

    #[test]
    fn refusals() {
        assert!(
            "ppo"
                .parse::<Estimator>()
                .unwrap_err()
                .0
                .contains("grpo, dr_grpo, rloo")
        );
        assert!(group_advantages(Estimator::Grpo, &[1.0], &[]).is_err());
        assert!(group_advantages(Estimator::Grpo, &[f64::NAN], &[0]).is_err());
        for estimator in [Estimator::Grpo, Estimator::DrGrpo, Estimator::Rloo] {
            let refusal = group_advantages(estimator, &[0.0, 1e308, -1e308], &[1, 2, 2]);
            assert!(
                refusal.unwrap_err().0.contains("trajectory 1 is"),
                "{estimator:?}"
            );
        }
        assert!(group_advantages(Estimator::DrGrpo, &[1e39, 0.0], &[0, 0]).is_err());
    }
}
