//! The output of a run. It outlives the run if the watchdog has to report the outcome.

/// The output of a run.
#[derive(Debug, Default)]
pub struct Output {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Output {
    pub fn len(&self) -> usize {
        self.stdout.len() + self.stderr.len()
    }
}
