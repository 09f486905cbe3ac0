//! Advantages that compare the trajectories of one group with each other.

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

/// One advantage for each trajectory; `groups[i]` names the group of trajectory i, in any order.
///
/// A group of one has nothing to be compared with: it takes mean 0 and standard deviation 1, as in verl. The
/// result does not depend on the order of the trajectories, not even in its last bit, and a group of equal
/// rewards gets exactly 0.
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
    Ok(groups
        .iter()
        .zip(rewards)
        .map(|(group, &reward)| baselines[group].advantage(reward))
        .collect())
}

/// What a reward is compared with: the advantage is (reward - mean) * scale.
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
                1.0 / ((squares / (count - 1.0)).sqrt() + EPSILON)
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

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
