//! The record of an episode in progress: sampled tokens and observations, spliced in one place.

use crate::error::{Result, invalid};

/// The policy version of tokens that were not sampled.
pub const OBSERVED: i32 = -1;

/// A growing trajectory. Its four response arrays have equal lengths after every call, failed ones included.
#[derive(Debug)]
pub struct TrajectoryBuilder {
    /// Prompt, then response.
    context: Vec<i32>,
    prompt_length: usize,
    loss_mask: Vec<bool>,
    rollout_logprobs: Vec<f32>,
    policy_versions: Vec<i32>,
    turns: Vec<(usize, usize)>,
    /// Whether the next sampled token belongs to the last turn.
    in_turn: bool,
}

impl TrajectoryBuilder {
    pub fn new(prompt_token_ids: Vec<i32>) -> Result<Self> {
        check_token_ids(&prompt_token_ids)?;
        Ok(Self {
            prompt_length: prompt_token_ids.len(),
            context: prompt_token_ids,
            loss_mask: Vec::new(),
            rollout_logprobs: Vec::new(),
            policy_versions: Vec::new(),
            turns: Vec::new(),
            in_turn: false,
        })
    }

    /// Appends sampled tokens. They continue the current turn or, after an observation, start the next.
    pub fn append_sampled(
        &mut self,
        token_ids: &[i32],
        logprobs: &[f32],
        policy_version: i32,
    ) -> Result<()> {
        if token_ids.len() != logprobs.len() {
            return invalid(format!(
                "{} sampled tokens with {} logprobs: each token needs exactly one",
                token_ids.len(),
                logprobs.len()
            ));
        }
        if policy_version < 0 {
            return invalid(format!(
                "policy version {policy_version}: versions count from 0"
            ));
        }
        check_token_ids(token_ids)?;
        if let Some(index) = logprobs.iter().position(|logprob| !logprob.is_finite()) {
            return invalid(format!(
                "the logprob of sampled token {index} is {}: it must be finite",
                logprobs[index]
            ));
        }
        if token_ids.is_empty() {
            return Ok(());
        }
        let start = self.len();
        self.context.extend_from_slice(token_ids);
        self.rollout_logprobs.extend_from_slice(logprobs);
        self.loss_mask.resize(start + token_ids.len(), true);
        self.policy_versions
            .resize(start + token_ids.len(), policy_version);
        match self.turns.last_mut() {
            Some(turn) if self.in_turn => turn.1 = start + token_ids.len(),
            _ => self.turns.push((start, start + token_ids.len())),
        }
        self.in_turn = true;
        Ok(())
    }

    /// Appends tokens that the policy did not sample and ends the turn; returns their range in the response.
    pub fn append_observation(&mut self, token_ids: &[i32]) -> Result<(usize, usize)> {
        check_token_ids(token_ids)?;
        let start = self.len();
        let stop = start + token_ids.len();
        self.context.extend_from_slice(token_ids);
        self.rollout_logprobs.resize(stop, 0.0);
        self.loss_mask.resize(stop, false);
        self.policy_versions.resize(stop, OBSERVED);
        self.in_turn = false;
        Ok((start, stop))
    }

    /// Tokens of the response so far.
    pub fn len(&self) -> usize {
        self.context.len() - self.prompt_length
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prompt and response: the tokens of the next request.
    pub fn context(&self) -> &[i32] {
        &self.context
    }

    pub fn token_ids(&self) -> &[i32] {
        &self.context[self.prompt_length..]
    }

    pub fn loss_mask(&self) -> &[bool] {
        &self.loss_mask
    }

    pub fn rollout_logprobs(&self) -> &[f32] {
        &self.rollout_logprobs
    }

    pub fn policy_versions(&self) -> &[i32] {
        &self.policy_versions
    }

    /// The range [start, stop) of the sampled tokens of each turn in the response.
    pub fn turns(&self) -> &[(usize, usize)] {
        &self.turns
    }
}

fn check_token_ids(token_ids: &[i32]) -> Result<()> {
    match token_ids.iter().find(|&&id| id < 0) {
        Some(id) => invalid(format!("token id {id}: ids count from 0")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_turns_and_an_observation() {
        let mut builder = TrajectoryBuilder::new(vec![7, 8]).unwrap();
        builder.append_sampled(&[1, 2], &[-0.5, -0.25], 3).unwrap();
        builder.append_sampled(&[3], &[-1.0], 4).unwrap();
        assert_eq!(builder.append_observation(&[9, 9]).unwrap(), (3, 5));
        builder.append_sampled(&[], &[], 4).unwrap();
        assert_eq!(builder.turns(), [(0, 3)]);
        builder.append_sampled(&[4], &[-2.0], 4).unwrap();
        assert_eq!(builder.context(), [7, 8, 1, 2, 3, 9, 9, 4]);
        assert_eq!(builder.token_ids(), [1, 2, 3, 9, 9, 4]);
        assert_eq!(builder.loss_mask(), [true, true, true, false, false, true]);
        assert_eq!(
            builder.rollout_logprobs(),
            [-0.5, -0.25, -1.0, 0.0, 0.0, -2.0]
        );
        assert_eq!(builder.policy_versions(), [3, 3, 4, -1, -1, 4]);
        assert_eq!(builder.turns(), [(0, 3), (5, 6)]);
        assert_eq!(builder.len(), 6);
    }

    #[test]
    fn a_refused_append_leaves_the_record_as_it_was() {
        let mut builder = TrajectoryBuilder::new(vec![]).unwrap();
        builder.append_sampled(&[1], &[-0.5], 0).unwrap();
        assert!(builder.append_sampled(&[1, 2], &[-0.5], 0).is_err());
        assert!(builder.append_sampled(&[1], &[f32::NAN], 0).is_err());
        assert!(
            builder
                .append_sampled(&[1], &[f32::NEG_INFINITY], 0)
                .is_err()
        );
        assert!(builder.append_sampled(&[-1], &[-0.5], 0).is_err());
        assert!(builder.append_sampled(&[1], &[-0.5], -1).is_err());
        assert!(builder.append_observation(&[-1]).is_err());
        assert!(TrajectoryBuilder::new(vec![-1]).is_err());
        builder.append_sampled(&[2], &[-0.25], 0).unwrap();
        assert_eq!(builder.token_ids(), [1, 2]);
        assert_eq!(builder.turns(), [(0, 2)]);
    }
}
