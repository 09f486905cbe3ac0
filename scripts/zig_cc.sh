#!/usr/bin/env bash
# The linker of `make wheel`: zig carries every glibc, so the extension asks for 2.28 whatever this machine has.
# Nothing is compiled anew for it, for only the last link step decides which glibc is asked for.
for argument; do
    [ "$argument" = -lgcc_s ] && argument=-lunwind # zig's own unwinder, linked in
    arguments+=("$argument")
done
exec "$(dirname "$0")/../.venv/bin/python" -m ziglang cc -target "$(uname -m)-linux-gnu.2.28" "${arguments[@]}"
