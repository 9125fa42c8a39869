-- The logs of runs. {ns} is the namespace. A row has the lines of one report, as a JSON array; number, size and written
-- count up to its last line: lines and bytes of the run, and lines of the attempt with this fence.
CREATE TABLE {ns}.run_lines (
    seq BIGINT NOT NULL,
    number BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    size BIGINT NOT NULL,
    written BIGINT NOT NULL,
    keep INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    lines TEXT NOT NULL,
    PRIMARY KEY (seq, number, fence)
);
