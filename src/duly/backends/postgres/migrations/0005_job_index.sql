-- The handlers of jobs, so that a review of them need not read all jobs. {ns} is the namespace.
--
-- The index is of functions of the record: a process of an earlier version keeps it, too. They are NULL where the record
-- cannot be read. An index of functions, unlike a column, is made without rewriting the table.

-- The handler of a job that needs one (`JobRecord.needs_handler`); NULL for others.
CREATE FUNCTION {ns}.needed_handler(record TEXT) RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    job JSON;
BEGIN
    job := record::json; -- here, where a failure is caught
    IF job ->> 'removed_at' IS NULL AND job #> '{spec,schedule}' ->> 'type' IS NOT NULL THEN
        RETURN job #>> '{spec,handler}';
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

CREATE FUNCTION {ns}.is_retired(record TEXT) RETURNS BOOLEAN
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN record::json ->> 'retired_at' IS NOT NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

CREATE INDEX jobs_handler ON {ns}.jobs ({ns}.is_retired(record), ({ns}.needed_handler(record)) COLLATE "C", name);
