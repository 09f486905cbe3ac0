//! The repetition of a text.

/// Returns the fraction of a text's substrings, each counted once per occurrence, that repeat an earlier one: between 0
/// and 1, and 0 for texts of fewer than two symbols.
///
/// ORZ and ZeroTIR sum the longest common prefixes of neighbors in the suffix array, which is the same count. Here it
/// is the number of all substrings minus the number of distinct ones, from a suffix automaton. The time is linear in
/// the length of the text, apart from the number of distinct symbols.
pub fn repetition(text: &[u32]) -> f64 {
    let count = text.len() as f64;
    if text.len() < 2 {
        return 0.0;
    }
    let all = count * (count + 1.0) / 2.0;
    1.0 - distinct_substrings(text) as f64 / all
}

/// A state of the automaton: a class of substrings with the same end positions.
#[derive(Clone, Default)]
struct State {
    longest: u32,
    /// The state of its longest suffixes with more end positions; `None` for the root.
    link: Option<u32>,
    /// By symbol, in order.
    next: Vec<(u32, u32)>,
}

impl State {
    fn follow(&self, symbol: u32) -> Option<u32> {
        let place = self.next.binary_search_by_key(&symbol, |&(known, _)| known);
        place.ok().map(|place| self.next[place].1)
    }

    fn lead(&mut self, symbol: u32, to: u32) {
        match self.next.binary_search_by_key(&symbol, |&(known, _)| known) {
            Ok(place) => self.next[place].1 = to,
            Err(place) => self.next.insert(place, (symbol, to)),
        }
    }
}

fn distinct_substrings(text: &[u32]) -> u64 {
    let mut states = Vec::with_capacity(2 * text.len());
    states.push(State::default());
    let mut last = 0;
    for &symbol in text {
        last = extend(&mut states, last, symbol);
    }
    let shortest_above = |state: &State| state.link.map_or(0, |link| states[link as usize].longest);
    let own = |state: &State| u64::from(state.longest - shortest_above(state));
    states.iter().map(own).sum()
}

/// Blumer's construction, one symbol at a time; returns the state of the whole text.
fn extend(states: &mut Vec<State>, last: u32, symbol: u32) -> u32 {
    let whole = states.len() as u32;
    states.push(State {
        longest: states[last as usize].longest + 1,
        link: Some(0),
        next: Vec::new(),
    });
    let mut place = Some(last);
    while let Some(at) = place {
        match states[at as usize].follow(symbol) {
            None => {
                states[at as usize].lead(symbol, whole);
                place = states[at as usize].link;
            }
            Some(to) => {
                let link = parted(states, at, to, symbol);
                states[whole as usize].link = Some(link);
                break;
            }
        }
    }
    whole
}

/// Returns the state of `at` extended by the symbol; splits `to` if it also contains longer substrings.
fn parted(states: &mut Vec<State>, at: u32, to: u32, symbol: u32) -> u32 {
    let longest = states[at as usize].longest + 1;
    if states[to as usize].longest == longest {
        return to;
    }
    let twin = states.len() as u32;
    states.push(State {
        longest,
        ..states[to as usize].clone()
    });
    states[to as usize].link = Some(twin);
    let mut place = Some(at);
    while let Some(at) = place {
        if states[at as usize].follow(symbol) != Some(to) {
            break;
        }
        states[at as usize].lead(symbol, twin);
        place = states[at as usize].link;
    }
    twin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let of = |text: &str| repetition(&text.chars().map(u32::from).collect::<Vec<_>>());
        assert_eq!(of(""), 0.0);
        assert_eq!(of("a"), 0.0);
        assert_eq!(of("abc"), 0.0);
        assert!((of("aaaa") - 0.6).abs() < 1e-12); // 4 of 10 substrings are distinct
        assert!((of("abab") - 0.3).abs() < 1e-12); // a b ab ba aba bab abab
    }
}
