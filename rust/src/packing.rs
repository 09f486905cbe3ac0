//! Packing of sequences into rows of a fixed capacity, and assignment of the rows to ranks.
//!
//! Every rank gets the same number of rows, because ranks step through their rows together; a rank without work gets
//! empty rows. The number of rows is that of first-fit decreasing, rounded up to a multiple of the number of ranks.

use std::cmp::Reverse;

use crate::error::{Result, invalid};

/// Indices of the items of one row.
pub type Row = Vec<usize>;

/// Packs items into rows of at most `capacity` tokens, the same number of rows for each of `ranks`:
/// `[rank][row][item]`. Deterministic: the result depends on the arguments only.
pub fn pack(lengths: &[usize], capacity: usize, ranks: usize) -> Result<Vec<Vec<Row>>> {
    if capacity == 0 || ranks == 0 {
        return invalid(format!(
            "capacity {capacity} and ranks {ranks}: both must be at least 1"
        ));
    }
    if let Some(index) = lengths.iter().position(|&length| length > capacity) {
        return invalid(format!(
            "item {index} has {} tokens and does not fit into a row of {capacity}; raise the capacity or drop it",
            lengths[index]
        ));
    }
    let mut items: Vec<usize> = (0..lengths.len()).collect();
    items.sort_by_key(|&item| Reverse(lengths[item])); // stable: ties stay in the order of their indices
    let first_fit = first_fit_decreasing(&items, lengths, capacity);
    let rows_per_rank = first_fit.len().div_ceil(ranks);
    // Every rank has these rows in any case. If an even spread also fits, no rank waits for a fuller row.
    let mut rows =
        spread_evenly(&items, lengths, capacity, rows_per_rank * ranks).unwrap_or(first_fit);
    rows.resize(rows_per_rank * ranks, Row::new());
    Ok(deal(rows, lengths, ranks))
}

fn first_fit_decreasing(items: &[usize], lengths: &[usize], capacity: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    for &item in items {
        match free.iter().position(|&space| space >= lengths[item]) {
            Some(row) => {
                rows[row].push(item);
                free[row] -= lengths[item];
            }
            None => {
                rows.push(vec![item]);
                free.push(capacity - lengths[item]);
            }
        }
    }
    rows
}

/// Puts the longest item first into the emptiest row; returns `None` if an item does not fit.
fn spread_evenly(
    items: &[usize],
    lengths: &[usize],
    capacity: usize,
    count: usize,
) -> Option<Vec<Row>> {
    let mut rows = vec![Row::new(); count];
    let mut used = vec![0; count];
    for &item in items {
        let row = (0..count).min_by_key(|&row| (used[row], row))?;
        used[row] += lengths[item];
        if used[row] > capacity {
            return None;
        }
        rows[row].push(item);
    }
    Some(rows)
}

/// Assigns the fullest row first, to the rank with the fewest tokens among those that still lack rows.
fn deal(mut rows: Vec<Row>, lengths: &[usize], ranks: usize) -> Vec<Vec<Row>> {
    let tokens = |row: &Row| row.iter().map(|&item| lengths[item]).sum::<usize>();
    let rows_per_rank = rows.len() / ranks;
    rows.sort_by_key(|row| Reverse(tokens(row)));
    let mut dealt: Vec<Vec<Row>> = vec![Vec::new(); ranks];
    let mut loads = vec![0; ranks];
    for row in rows {
        let open = (0..ranks).filter(|&rank| dealt[rank].len() < rows_per_rank);
        if let Some(rank) = open.min_by_key(|&rank| (loads[rank], rank)) {
            loads[rank] += tokens(&row);
            dealt[rank].push(row);
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        // First fit: [6, 4], [5, 3, 2]. Even spread over two rows: 6+3+2 = 11 > 10, so the first fit stays.
        assert_eq!(
            pack(&[2, 3, 4, 5, 6], 10, 1).unwrap(),
            [[vec![4, 2], vec![3, 1, 0]]]
        );
        // Three rows on two ranks become four, spread evenly: 4+2, 4+2, 4, 4 tokens.
        let packed = pack(&[4, 4, 4, 4, 2, 2], 8, 2).unwrap();
        assert_eq!(packed, [[vec![0, 4], vec![2]], [vec![1, 5], vec![3]]]);
    }

    #[test]
    fn ranks_without_work_get_empty_rows() {
        assert_eq!(pack(&[3], 4, 3).unwrap(), [[vec![0]], [vec![]], [vec![]]]);
        assert_eq!(pack(&[], 4, 2).unwrap(), [Vec::<Row>::new(), Vec::new()]);
    }

    #[test]
    fn refusals() {
        assert!(
            pack(&[1, 9], 8, 1)
                .unwrap_err()
                .0
                .contains("item 1 has 9 tokens")
        );
        assert!(pack(&[1], 0, 1).is_err());
        assert!(pack(&[1], 1, 0).is_err());
    }
}
