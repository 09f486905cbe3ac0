//! What a run has written, which outlives the run where the watchdog has to answer for it.

/// What a run has written.
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
