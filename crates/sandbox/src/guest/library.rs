//! Additions to the guest's library: threads and event loops that work on one thread, and the like.

/// Modules by name, in the order of their creation. They are only defined then; `warmup.py` activates them.
pub const MODULES: [(&str, &str); 26] = [
    ("_torl_waiting", include_str!("library/waiting.py")),
    ("_torl_locks", include_str!("library/locks.py")),
    ("_torl_threads", include_str!("library/threads.py")),
    ("_torl_executors", include_str!("library/executors.py")),
    ("_torl_memory", include_str!("library/memory.py")),
    ("_torl_cells", include_str!("library/cells.py")),
    ("_torl_channels", include_str!("library/channels.py")),
    ("_torl_processes", include_str!("library/processes.py")),
    ("_torl_event_loop", include_str!("library/event_loop.py")),
    ("_torl_imports", include_str!("library/imports.py")),
    ("_torl_plots", include_str!("library/plots.py")),
    ("_torl_indices", include_str!("library/indices.py")),
    ("_torl_orders", include_str!("library/orders.py")),
    ("_torl_widths", include_str!("library/widths.py")),
    ("_torl_sampling", include_str!("library/sampling.py")),
    (
        "_torl_scikit_learn",
        include_str!("library/scikit_learn.py"),
    ),
    ("_torl_ranges", include_str!("library/ranges.py")),
    ("_torl_pretty", include_str!("library/pretty.py")),
    ("_torl_numbers", include_str!("library/numbers.py")),
    ("_torl_digests", include_str!("library/digests.py")),
    ("_torl_system", include_str!("library/system.py")),
    ("_torl_alarms", include_str!("library/alarms.py")),
    ("_torl_tracebacks", include_str!("library/tracebacks.py")),
    ("_torl_display", include_str!("library/display.py")),
    ("_torl_notebook", include_str!("library/notebook.py")),
    ("_torl_library", include_str!("library/library.py")),
];

/// Returns the text of all modules, which is part of the image's key.
pub fn text() -> String {
    MODULES
        .map(|(name, source)| format!("{name}\n{source}"))
        .concat()
}
