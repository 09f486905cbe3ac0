"""Mutants that the tests of the crates must kill: (path, text, replacement, effect)."""

_SCANNER = "rust/src/scanner.rs"
_FENCES = "rust/src/fences.rs"
_MARKER = "rust/src/marker.rs"
_SPLICE = "rust/src/splice.rs"
_PACKING = "rust/src/packing.rs"
_ADVANTAGE = "rust/src/advantage.rs"
_SESSION = "crates/sandbox/src/session.rs"
_RESET = "crates/sandbox/src/run/reset.rs"
_INTERRUPT = "crates/sandbox/src/run/interrupt.rs"
_CLOCK = "crates/sandbox/src/run/virtual_clock.rs"

MUTANTS: tuple[tuple[str, str, str, str], ...] = (
    # --- scanner: the end of a turn and its code blocks
    (
        _MARKER,
        "matched = self.fallback[matched - 1];\n        }\n        matched +",
        "matched = 0;\n        }\n        matched +",
        "a marker that begins inside half a marker is missed: ````output",
    ),
    (
        _SCANNER,
        "begins[usize::from(marker.bytes()[0])] = true;",
        "",
        "a marker that begins with a letter is missed in tokens that are skipped",
    ),
    (
        _SCANNER,
        "            && self.matched == 0\n",
        "",
        "a token without newline or backtick forgets half a marker",
    ),
    (_SCANNER, "turn.code.extend_from_slice(token);", "", "code lacks the tokens that are skipped"),
    (_SCANNER, "turn.position += token.len();", "", "offsets lack the tokens that are skipped"),
    (_SCANNER, "return Ok(index + 1);", "return Ok(index);", "the token that ends the turn is not counted to it"),
    (_SCANNER, "self.code.truncate(self.code.len() - taken);", "", "code ends with half a fence"),
    (
        _FENCES,
        "if count + 1 == opener.len() {",
        "if count + 1 >= FENCE.len() {",
        "a fence without a language opens a block",
    ),
    (
        _FENCES,
        "            Line::Opener if matches!(byte, b' ' | b'\\t' | b'\\r') => Line::Opener,\n",
        "",
        "a blank after the language keeps the block closed",
    ),
    (
        _FENCES,
        "_ if byte == b'\\n' => Line::Opening(0),",
        "Line::Rest if byte == b'\\n' => Line::Opening(0),",
        "a fence after an empty line is missed",
    ),
    (_SCANNER, "start: self.position - self.matched,", "start: self.position,", "the marker begins where it ends"),
    (
        _SCANNER,
        "let overshoot = &token[index + 1..];",
        "let overshoot = &token[index..];",
        "the overshoot holds the end",
    ),
    (
        _FENCES,
        "            Line::Opener if self.fences == Fences::LineEnds => Line::Opener,\n",
        "",
        "ToRL's code runs a block whose opening line continues after the language",
    ),
    (
        _FENCES,
        "before == Line::Opener || ends_with_opener",
        "before == Line::Opener",
        "ToRL's code runs a block that opens at the end of a line",
    ),
    (_SCANNER, "                self.code.clear();\n", "", "a block that restarts keeps its old code"),
    (
        _FENCES,
        "if byte == b'`' { self.backticks + 1 } else { 0 }",
        "self.backticks + usize::from(byte == b'`')",
        "three backticks apart close a block",
    ),
    (_SCANNER, "longest = longest.max(*matched);", "longest = 1;", "a stop string has the wrong position"),
    (
        _SCANNER,
        "            && self.stops_matched.iter().all(|&matched| matched == 0)\n",
        "",
        "a stop string cut by a token's end is missed",
    ),
    # --- splice: the record of an episode
    (
        _SPLICE,
        "self.loss_mask.resize(stop, false);",
        "self.loss_mask.resize(stop, true);",
        "observations are trained on",
    ),
    (_SPLICE, "Some(turn) if self.in_turn =>", "Some(turn) if !self.in_turn =>", "turns are joined and split wrongly"),
    (
        _SPLICE,
        "        self.in_turn = false;\n        Ok((start, stop))",
        "        Ok((start, stop))",
        "an observation does not end its turn",
    ),
    (
        _SPLICE,
        "        if token_ids.is_empty() {\n            return Ok(());\n        }\n",
        "",
        "an empty piece after an observation begins a turn without tokens",
    ),
    (_SPLICE, "!logprob.is_finite()", "logprob.is_nan()", "an infinite logprob reaches the loss"),
    (
        _SPLICE,
        "self.policy_versions.resize(stop, OBSERVED);",
        "self.policy_versions.resize(stop, 0);",
        "observations get policy version 0",
    ),
    # --- packing
    (
        _PACKING,
        "items.sort_by_key(|&item| Reverse(lengths[item]));",
        "items.sort_by_key(|&item| lengths[item]);",
        "not first-fit decreasing",
    ),
    (_PACKING, "space >= lengths[item]", "space > lengths[item]", "a row is never filled to the last token"),
    (_PACKING, "if used[row] > capacity {", "if used[row] > capacity + 1 {", "a row of one token too many"),
    (
        _PACKING,
        ".min_by_key(|&row| (used[row], row))",
        ".max_by_key(|&row| (used[row], row))",
        "rows that could be even are not",
    ),
    (
        _PACKING,
        "dealt[rank].len() < rows_per_rank",
        "dealt[rank].len() <= rows_per_rank",
        "ranks get different numbers of rows",
    ),
    (_PACKING, "loads[rank] += tokens(&row);", "", "one rank gets all the full rows"),
    # --- advantages
    (
        _ADVANTAGE,
        "(squares / (count - 1.0)).sqrt();",
        "(squares / count).sqrt();",
        "GRPO's deviation is biased",
    ),
    (_ADVANTAGE, "Estimator::Rloo => count / (count - 1.0),", "Estimator::Rloo => 1.0,", "RLOO is Dr. GRPO"),
    (_ADVANTAGE, "        rewards.sort_by(f64::total_cmp);\n", "", "advantages depend on the order of a group"),
    (_ADVANTAGE, "if sampled { value } else { 0.0 }", "value", "observed tokens get an advantage"),
    (
        _ADVANTAGE,
        "next = own + std::mem::take(&mut arriving) + discount * next;",
        "next = own + arriving + discount * next;",
        "the reward arrives at every token",
    ),
    (_ADVANTAGE, "discount * lambda * next_advantage", "discount * next_advantage", "lambda has no effect"),
    (_ADVANTAGE, "            next_value = value;\n", "", "GAE bootstraps from nothing"),
    (
        _ADVANTAGE,
        "returns[token] = (next_advantage + value) as f32;",
        "returns[token] = next_advantage as f32;",
        "the critic learns advantages",
    ),
    (
        _ADVANTAGE,
        "let mean = origin + total(",
        "let mean = total(",
        "whitened values are not around 0",
    ),
    # --- sessions: the state that one part leaves for the next
    (
        _SESSION,
        "changes.push(image.len() / BLOCK + index, now);",
        "changes.push(index, now);",
        "grown memory is put over the image",
    ),
    (_SESSION, "if now != [0; BLOCK] {", "if now == [0; BLOCK] {", "writes to grown memory are lost"),
    (_SESSION, "range.start / BLOCK + index", "index", "changes are put at the start of memory"),
    (
        _SESSION,
        "Some((place, next)) if next == block => place,",
        "Some((place, _)) => place,",
        "blocks that are apart are put together",
    ),
    (
        _SESSION,
        "self.last = Some((place, block + 1));",
        "self.last = Some((place, block));",
        "adjacent blocks get a head each",
    ),
    # --- the reset of a kept guest: no state of one run may reach the next
    (
        _RESET,
        "if now != then {\n                now.copy_from_slice(then);",
        "if now != then {",
        "writes of a run remain",
    ),
    (
        _RESET,
        "self.clean[page] < PATIENCE",
        "self.clean[page] < 1",
        "written pages are protected while they differ next time",
    ),
    (_RESET, "idle = page + 1;", "", "pages that were just written are protected with their neighbours"),
    (_RESET, ".max(covered);", ".min(covered);", "regions are named twice"),
    (_RESET, "start = reached;", "start = end;", "only the first regions are restored"),
    (
        _RESET,
        "                self.clean[page] += 1;\n",
        "                self.clean[page] = 0;\n",
        "a page once written is always compared",
    ),
    (_RESET, "self.protect(tracker, idle..pages.end)?;", "", "the last pages of a region are always compared"),
    (
        _INTERRUPT,
        "from_le_bytes(*bytes) & !bits)",
        "from_le_bytes(*bytes))",
        "an interrupt at the end of a part hits the next one",
    ),
    (
        _INTERRUPT,
        "if own.is_set(base) {",
        "if self.words.iter().any(|word| word.is_set(base)) {",
        "an interrupt that was handled arrives again",
    ),
    (_CLOCK, "self.readings = 0;", "", "readings before a wait make the clock fast after it"),
)
