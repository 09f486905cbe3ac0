//! The worker process for embedders without their own interpreter to host it.

use std::process::ExitCode;

fn main() -> ExitCode {
    if torl_sandbox::worker::main() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
