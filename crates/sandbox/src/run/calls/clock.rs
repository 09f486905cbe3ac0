//! The calls of the virtual clock.

use wasmtime::{Linker, Val};

use super::{Call, WASI};
use crate::errno::{self, Checked};
use crate::run::host::{GuestMemory, HostState, host_call};
use crate::run::virtual_clock::CLOCK_TICK;

/// Maximum number of subscriptions in one call: one per descriptor, and some clocks.
const MAXIMUM_SUBSCRIPTIONS: i32 = 1024;

pub fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.func_wrap(
        WASI,
        "clock_time_get",
        |mut c: Call, id: i32, _: i64, out: i32| {
            at_current_time(&mut c, |memory, state| {
                state.clock.note_reading();
                let time = state.clock.time(id as u32).ok_or(errno::INVAL)?;
                memory.write(out, &time.to_le_bytes())
            })
        },
    )?;
    linker.func_wrap(WASI, "clock_res_get", |mut c: Call, _: i32, out: i32| {
        host_call(&mut c, |memory, _| {
            Ok(memory.write(out, &CLOCK_TICK.to_le_bytes()))
        })
    })?;
    linker.func_wrap(
        WASI,
        "poll_oneoff",
        |mut c: Call, subscriptions: i32, events: i32, count: i32, written: i32| {
            at_current_time(&mut c, |memory, state| {
                poll_oneoff(memory, state, subscriptions, events, count, written)
            })
        },
    )?;
    Ok(())
}

/// Runs the body of a host call after the clock has advanced by the work of the guest, and aims its alarm.
fn at_current_time(
    caller: &mut Call<'_>,
    body: impl FnOnce(&mut GuestMemory<'_>, &mut HostState) -> Checked<()>,
) -> wasmtime::Result<i32> {
    let counters = caller.data().counters;
    let work = counters.map(|counters| counters.work(&mut *caller));
    let mut aim = None;
    let answer = host_call(caller, |memory, state| {
        if let Some(work) = work {
            state.clock.note_work(work);
        }
        let answer = body(memory, state);
        aim = state.clock.aim_alarm();
        Ok(answer)
    });
    if let (Some(aim), Some(counters)) = (aim, counters) {
        counters.alarm.set(caller, Val::I64(aim as i64))?;
    }
    answer
}

/// Waits. Takes no real time: the virtual clock jumps to the earliest deadline. Descriptors are always ready.
fn poll_oneoff(
    memory: &mut GuestMemory<'_>,
    state: &mut HostState,
    subscriptions: i32,
    events: i32,
    count: i32,
    written: i32,
) -> Checked<()> {
    const SUBSCRIPTION_BYTES: i32 = 48;
    const EVENT_BYTES: i32 = 32;
    if !(1..=MAXIMUM_SUBSCRIPTIONS).contains(&count) {
        return Err(errno::INVAL);
    }
    let at = |index: i32, offset: i32| {
        subscriptions
            .wrapping_add(index.wrapping_mul(SUBSCRIPTION_BYTES))
            .wrapping_add(offset)
    };
    // Per subscription: nanoseconds until it is due. A descriptor is due now.
    let mut earliest = u64::MAX;
    let due = |memory: &GuestMemory<'_>, state: &HostState, index: i32| -> Checked<u64> {
        if memory.slice(at(index, 8), 1)?[0] != 0 {
            return Ok(0);
        }
        let timeout = memory.read_u64(at(index, 24))?;
        let absolute = memory.slice(at(index, 40), 1)?[0] & 1 != 0;
        let now = match memory.read_u32(at(index, 16))? {
            clock @ 0..=1 => state.clock.time(clock).ok_or(errno::INVAL)?,
            _ => return Err(errno::INVAL),
        };
        Ok(if absolute {
            timeout.saturating_sub(now)
        } else {
            timeout
        })
    };
    for index in 0..count {
        earliest = earliest.min(due(memory, state, index)?);
    }
    let mut ready = 0i32;
    for index in 0..count {
        if due(memory, state, index)? > earliest {
            continue;
        }
        let mut event = [0u8; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&memory.read_u64(at(index, 0))?.to_le_bytes());
        event[10] = memory.slice(at(index, 8), 1)?[0];
        memory.write(events.wrapping_add(ready.wrapping_mul(EVENT_BYTES)), &event)?;
        ready += 1;
    }
    state.clock.wait(earliest);
    memory.write(written, &(ready as u32).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::run::host::state_for_tests;

    #[test]
    fn waiting_moves_the_clock_to_the_earliest_deadline() {
        let mut state = state_for_tests(&Request::default());
        let mut bytes = vec![0u8; 256];
        for (index, timeout) in [5_000u64, 3_000].into_iter().enumerate() {
            let at = index * 48;
            bytes[at] = 10 + index as u8;
            bytes[at + 16] = 1;
            bytes[at + 24..at + 32].copy_from_slice(&timeout.to_le_bytes());
        }
        let mut memory = GuestMemory(&mut bytes);
        assert_eq!(poll_oneoff(&mut memory, &mut state, 0, 96, 2, 200), Ok(()));
        assert_eq!(
            (state.clock.now(), memory.read_u32(200), memory.read_u64(96)),
            (3_000, Ok(1), Ok(11))
        );
        assert_eq!(
            poll_oneoff(&mut memory, &mut state, 0, 96, 0, 200),
            Err(errno::INVAL)
        );
    }
}
