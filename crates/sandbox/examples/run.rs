//! Runs Python files in the sandbox: `run WORKER ARTIFACTS CACHE FILE...`. A leading number repeats and times the runs.

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use torl_sandbox::{Pool, Request, Reuse, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [worker, artifacts, cache, files @ ..] = arguments.as_slice() else {
        return Err("usage: run WORKER ARTIFACTS CACHE FILE...".into());
    };
    let command = vec![worker.clone()];
    let prepared = torl_sandbox::prepare(
        &command,
        Path::new(artifacts),
        Path::new(cache),
        &mut |stage, fraction| {
            eprintln!("{:3.0} % {stage}", fraction * 100.0);
            true
        },
    )?;
    let settings = Settings {
        workers: 1,
        reuse: Reuse::default(),
        result_cache_bytes: 0,
    };
    let pool = Pool::new(command, prepared, settings, || false)?;
    for file in files {
        let code = std::fs::read(file)?;
        let mut times = Vec::new();
        let mut last = None;
        for _ in 0..200 {
            let started = Instant::now();
            let request = Request {
                code: code.clone(),
                ..Request::default()
            };
            last = Some(pool.run(request, || false)?);
            times.push(started.elapsed());
            if started.elapsed().as_secs() > 1 {
                break;
            }
        }
        times.sort();
        let outcome = last.ok_or("no run")?;
        println!(
            "{}: {:?} p50 {:?} cpu {:?} memory {}\n--- stdout\n{}\n--- stderr\n{}",
            file.display(),
            outcome.status,
            times[times.len() / 2],
            outcome.cpu_time,
            outcome.peak_memory_bytes,
            String::from_utf8_lossy(&outcome.stdout),
            String::from_utf8_lossy(&outcome.stderr),
        );
    }
    Ok(())
}
