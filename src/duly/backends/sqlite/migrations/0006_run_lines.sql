-- The logs of runs. {ns} is the namespace. A row has the lines of one report, as a JSON array; number, size and written
-- count up to its last line: lines and bytes of the run, and lines of the attempt with this fence.
CREATE TABLE {ns}_run_lines (
    seq INTEGER NOT NULL,
    number INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    size INTEGER NOT NULL,
    written INTEGER NOT NULL,
    keep INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (seq, number, fence)
) WITHOUT ROWID;
