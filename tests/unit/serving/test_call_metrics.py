from __future__ import annotations

from cloud_ml.serving.call_metrics import BATCH_SIZES, Tally


def test_runs_are_counted_by_rows_and_further_sizes_in_sums_only() -> None:
    tally = Tally()
    for rows in range(1, BATCH_SIZES + 101):
        tally.count_run(rows, requests=2, begun=1.0, took=0.25, copying=0.125)
    tally.count_run(3, requests=1, begun=5.0, took=0.5, copying=0.0)
    assert len(tally.sizes) == BATCH_SIZES
    assert tally.sizes[3] == [2, 0.75, 0.125]
    assert tally.rows.total == 3 + (BATCH_SIZES + 100) * (BATCH_SIZES + 101) / 2
    assert sum(tally.rows.counts) == sum(tally.run_s.counts) == BATCH_SIZES + 101
    assert tally.rows.counts[:3] == [1, 1, 3]  # one row, two rows, three (twice) and four
    assert tally.rows.counts[-1] == 100
    assert tally.infer_s == (BATCH_SIZES + 100) * 0.5 + 0.5
    assert tally.copy_s == (BATCH_SIZES + 100) * 0.25
    assert tally.last_run == 5.0
