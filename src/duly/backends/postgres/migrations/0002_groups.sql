-- Groups: their locks, who may enter at once, and who moves up when a member has left. {ns} is the namespace.
--
-- Every statement in these functions sees the store as it is when that statement begins.

-- Stripes instead of groups, since a server has room for a few thousand locks; in order, so that nobody waits in a
-- circle.
CREATE FUNCTION {ns}.stripes(groups TEXT []) RETURNS SETOF INTEGER
LANGUAGE sql STABLE AS $$
    SELECT DISTINCT hashtext(name) & 63 AS stripe FROM unnest(groups) AS name ORDER BY stripe
$$;

-- Be the only one to decide about these groups until the transaction ends: nobody enters, and no member that runs
-- leaves. Before any other row is locked.
CREATE FUNCTION {ns}.lock_groups(groups TEXT []) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('duly groups {ns}'), stripe) FROM {ns}.stripes(groups) AS stripe;
    PERFORM FROM {ns}.claims WHERE "group" = ANY(groups) ORDER BY seq FOR UPDATE;
END
$$;

-- Whether each of these groups has no member, and one run before it that is ready at that time. If so this stays true
-- until the transaction ends, but for what the transaction does itself: nobody decides about them meanwhile, and of two
-- who want to let in a run each, one sees the other's. It waits for nobody, since whoever asks has locked rows: false,
-- too, if somebody is just deciding about one of these groups.
CREATE FUNCTION {ns}.alone(groups TEXT [], at BIGINT) RETURNS BOOLEAN
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM {ns}.stripes(groups) AS stripe
        WHERE NOT pg_try_advisory_xact_lock_shared(hashtext('duly groups {ns}'), stripe)
    ) THEN
        RETURN false;
    END IF;
    RETURN NOT EXISTS (SELECT FROM {ns}.claims WHERE "group" = ANY(groups))
        AND NOT EXISTS (SELECT FROM {ns}.waiting WHERE "group" = ANY(groups) AND NOT entering)
        AND NOT EXISTS (SELECT FROM {ns}.held WHERE "group" = ANY(groups) AND member)
        AND cardinality(groups) = (
            SELECT count(*) FROM {ns}.waiting WHERE "group" = ANY(groups) AND entering AND ready_at <= at
        );
END
$$;

-- Put the first runs under a hold back: members and those without a group in line, the others before their group. How
-- many.
CREATE FUNCTION {ns}.unhold(key TEXT, most BIGINT) RETURNS BIGINT
LANGUAGE sql AS $$
    WITH first AS MATERIALIZED (
        SELECT seq FROM {ns}.held WHERE hold = key ORDER BY rank, ready_at, id LIMIT most FOR UPDATE SKIP LOCKED
    ),
    back AS (
        DELETE FROM {ns}.held WHERE seq = ANY(ARRAY(SELECT seq FROM first))
        RETURNING seq, line, rank, ready_at, id, "group", member
    ),
    placed AS (
        INSERT INTO {ns}.waiting (seq, line, rank, ready_at, id, "group", entering)
        SELECT seq, line, rank, ready_at, id, "group", "group" IS NOT NULL AND NOT member FROM back
    )
    SELECT count(*) FROM back
$$;

-- Members have left, each named by the hold of its group: as many of the runs held there wait again. How many.
CREATE FUNCTION {ns}.release(keys TEXT []) RETURNS BIGINT
LANGUAGE plpgsql STRICT AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {ns}.held WHERE hold = ANY(keys)) THEN
        RETURN 0;
    END IF;
    RETURN (
        SELECT sum({ns}.unhold(key, places)) FROM (SELECT key, count(*) AS places FROM unnest(keys) AS key GROUP BY key)
        AS freed
    );
END
$$;
