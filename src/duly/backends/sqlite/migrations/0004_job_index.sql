-- The handlers of jobs, so that a review of them need not read all jobs. {ns} is the namespace.
--
-- The columns are computed from the record: a process of an earlier version keeps them, too. handler is NULL for a job
-- that needs none (`JobRecord.needs_handler`), and where the record cannot be read.
ALTER TABLE {ns}_jobs ADD COLUMN handler TEXT GENERATED ALWAYS AS (
    CASE
        WHEN NOT json_valid(record) THEN NULL
        WHEN json_extract(record, '$.removed_at') IS NOT NULL THEN NULL
        WHEN json_extract(record, '$.spec.schedule') IS NOT NULL THEN json_extract(record, '$.spec.handler')
    END
) VIRTUAL;
ALTER TABLE {ns}_jobs ADD COLUMN retired INTEGER GENERATED ALWAYS AS (
    CASE WHEN json_valid(record) THEN json_extract(record, '$.retired_at') IS NOT NULL END
) VIRTUAL;
CREATE INDEX {ns}_jobs_handler ON {ns}_jobs (retired, handler, name) WHERE handler IS NOT NULL;
