-- A second checker of kretain's evidence, which shares no code with the first (kretain verify). It prints what is wrong: no rows, nothing.
--   duckdb -cmd "SET VARIABLE run = 'STATE_DIR/CLUSTER_ID/evidence/RUN'" -f evidence.sql
-- It decides R1, R3, R4 with G1, G2, G5, G7, G8 and G9 again, and checks F1 to F5, requests, and the sums that G6 counts. Of a row that
-- needs other rules (R2, R5 to R7, G3, whole segments, F10) it checks no more than that the target is within G1, and the rest.
CREATE OR REPLACE MACRO txt(j, path) AS json_extract_string(j, path);
CREATE OR REPLACE MACRO num(j, path) AS CAST(json_extract_string(j, path) AS BIGINT);
CREATE OR REPLACE MACRO yes(j, path) AS coalesce(json_extract_string(j, path) = 'true', false);
CREATE OR REPLACE MACRO offset_at(l, t, of_data) AS
    CASE WHEN t <= 0 THEN 0 ELSE list_filter(l, lambda x: x.at_ms = t AND x."data" = of_data)[1]."offset" END;

CREATE OR REPLACE TEMP VIEW facts AS
SELECT *, log_start AS s, high_watermark AS h, last_stable_offset AS l,
    json_type(topic_facts, '$.cleanup_policy') = 'ARRAY' AS cleanup_known,
    json_contains(topic_facts->'$.cleanup_policy', '"delete"') AND cleanup_known AS deletes,
    json_contains(topic_facts->'$.cleanup_policy', '"compact"') AND cleanup_known AS compacts,
    num(settings, '$.consumed_after_ms') AS r1_ms, num(settings, '$.min_timestamp_ms') AS r3_ms,
    num(settings, '$.forced_age_ms') AS r4_ms, coalesce(more, '{}') AS odd,
    txt(settings, '$.event_time_ms') IS NULL AND txt(settings, '$.max_bytes') IS NULL
        AND txt(settings, '$.max_topic_bytes') IS NULL AND txt(settings, '$.min_wallclock_ms') IS NULL
        AND txt(settings, '$.watch_first_ms') IS NULL AND NOT yes(settings, '$.whole_segments')
        AND txt(odd, '$.usage') IS NULL AND txt(odd, '$.disks') IS NULL AS plain,
    -- What the topic's own retention.ms is for R1: −1 is infinite, null unknown.
    CASE WHEN NOT cleanup_known OR (deletes AND json_type(topic_facts, '$.retention_ms') = 'OBJECT') THEN NULL
        WHEN deletes THEN num(topic_facts, '$.retention_ms') ELSE -1 END AS live_ms,
    yes(settings, '$.named_in_full') AS named
FROM read_parquet(getvariable('run') || '/*-facts.parquet');

-- What each rule asks for: null is unknown, and a bound at or below S asks for nothing.
CREATE OR REPLACE TEMP VIEW asked AS
SELECT f.*, asker, n, guarded, CASE asker
    WHEN 'consumed' THEN CASE
        WHEN live_ms IS NULL OR (live_ms <> -1 AND r1_ms > live_ms) OR (coalesce(r4_ms, -1) <> -1 AND r1_ms > r4_ms)
            OR floor IS NULL THEN NULL
        WHEN floor <= s THEN floor
        WHEN offset_at(lookups, now_ms - r1_ms, false) IS NULL THEN NULL
        ELSE least(floor, offset_at(lookups, now_ms - r1_ms, false)) END
    WHEN 'min-timestamp' THEN CASE WHEN r3_ms > now_ms AND NOT yes(settings, '$.allow_empty') THEN NULL
        ELSE offset_at(lookups, r3_ms, true) END
    ELSE offset_at(lookups, now_ms - r4_ms, false) END AS bound
FROM facts f, LATERAL (VALUES ('consumed', 1, r1_ms, false), ('min-timestamp', 2, r3_ms, true),
    ('forced-age', 3, r4_ms, yes(settings, '$.forced_age_guarded'))) AS rules(asker, n, ms, of_g2),
    LATERAL (SELECT of_g2 AND txt(settings, '$.unconsumed') = 'hold' AS guarded)
WHERE ms IS NOT NULL;

-- What the guards leave of it: 'none', 'unknown', or an offset and who limited it.
CREATE OR REPLACE TEMP VIEW weighed AS
SELECT *, CASE WHEN bound IS NULL THEN 'unknown' WHEN bound <= s THEN 'none'
        WHEN least(g1, g2) <= s AND least(g1, g2) < bound THEN 'none'
        WHEN l IS NULL OR (guarded AND floor IS NULL) OR txt(odd, '$.clock') IS NOT NULL
            OR (NOT yes(settings, '$.allow_ancient') AND coalesce(offset_at(lookups, 946684800000, false) > s, true))
        THEN 'unknown' ELSE 'offset' END AS kind,
    least(g1, g2) AS allowed,
    CASE WHEN g1 < bound AND g1 <= g2 THEN 'G1' WHEN g2 < bound AND g2 < g1 THEN 'G2' END AS by_guard
FROM (SELECT *, least(bound, h, coalesce(l, bound)) AS g1,
        CASE WHEN guarded THEN least(bound, coalesce(floor, bound)) ELSE bound END AS g2 FROM asked);

CREATE OR REPLACE TEMP VIEW decided AS
SELECT f.*, CASE
        WHEN yes(topic_facts, '$.internal') OR (NOT named AND (starts_with(topic, '_') OR ends_with(topic, '-changelog')
            OR ends_with(topic, '-repartition') OR yes(settings, '$.of_audit')
            OR (contains(topic, 'KTABLE-FK-JOIN-SUBSCRIPTION-') AND ends_with(topic, '-topic'))
            OR ends_with(topic, '-subscription-registration-topic') OR ends_with(topic, '-subscription-response-topic')))
            OR (compacts AND NOT (deletes AND yes(settings, '$.trim_compacted'))) THEN 'skip'
        WHEN txt(settings, '$.hold') IS NOT NULL THEN 'hold'
        WHEN s = h THEN 'keep'
        WHEN txt(settings, '$.unsettled') IS NOT NULL OR NOT cleanup_known OR s IS NULL OR h IS NULL
            OR json_type(topic_facts, '$.topic_id') = 'OBJECT' THEN 'hold'
        WHEN w.best IS NOT NULL THEN 'trim' WHEN w.unknown THEN 'hold' ELSE 'keep' END AS d_action,
    CASE WHEN d_action = 'trim' THEN w.best.allowed END AS d_trim_to,
    CASE WHEN d_action = 'trim' THEN w.best.rule END AS d_rule,
    CASE WHEN d_action = 'trim' THEN w.best.by_guard END AS d_limited_by
FROM facts f LEFT JOIN (
    SELECT recheck, topic, "partition", coalesce(bool_or(kind = 'unknown'), false) AS unknown,
        first({allowed: allowed, rule: asker, by_guard: by_guard} ORDER BY allowed DESC, n) FILTER (kind = 'offset') AS best
    FROM weighed GROUP BY ALL) w USING (recheck, topic, "partition");

-- How far a request may go: no further than the plan and the recheck, of one log, with no more unread than planned.
CREATE OR REPLACE TEMP VIEW allowed AS
SELECT *, CASE WHEN action = 'trim' AND trim_to IS NOT NULL AND txt(topic_facts, '$.topic_id') = plan_topic_id
        AND (plan_epoch = leader_epoch OR (plan_epoch < leader_epoch AND num(odd, '$.epoch_end') >= plan_trim_to))
        AND (plan_min_commit IS NULL OR floor >= plan_min_commit) AND most > s
        AND most - least(greatest(s, coalesce(floor, s)), most) <= plan_unconsumed THEN most END AS may
FROM (SELECT *, least(plan_trim_to, trim_to) AS most FROM decided);

CREATE OR REPLACE TEMP VIEW commit AS
SELECT topic, "partition", f.floor, floor_by, h, s, leader_epoch, c.*, num(odd, '$.floor.offset') IS NOT NULL
        AND contains(coalesce(txt(odd, '$.floor.notes'), ''), '"code":"F2"') AS starts
FROM facts f, LATERAL (SELECT unnest(commits) AS c) WHERE f.floor IS NOT NULL AND h IS NOT NULL;

CREATE OR REPLACE TEMP VIEW results AS
SELECT r.*, f.recheck IS NOT NULL AS based, f.s, f.may, f.began_ms, f.done_ms
FROM read_parquet(getvariable('run') || '/results*.parquet') r LEFT JOIN allowed f USING (recheck, topic, "partition");

SELECT topic, "partition", wrong FROM (
    SELECT topic, "partition", format('{} to {} by {}, {}: by the facts {} to {} by {}, {}', action, trim_to, rule, limited_by,
        d_action, d_trim_to, d_rule, d_limited_by) AS wrong FROM decided
    WHERE plain AND (action, trim_to, rule, limited_by) IS DISTINCT FROM (d_action, d_trim_to, d_rule, d_limited_by)
  UNION ALL SELECT topic, "partition", 'G1: beyond the log''s end' FROM facts WHERE trim_to > least(h, coalesce(l, -1))
  UNION ALL SELECT topic, "partition", 'a trim without a target or rule, or these without a trim' FROM facts
    WHERE (action = 'trim') <> (trim_to IS NOT NULL) OR (action = 'trim') <> (rule IS NOT NULL)
        OR (action <> 'trim' AND limited_by IS NOT NULL)
  UNION ALL SELECT topic, "partition", 'read out of order' FROM facts
    WHERE NOT (began_ms <= commits_ms AND commits_ms <= ends_ms AND ends_ms <= lookups_ms AND lookups_ms <= again_ms
        AND again_ms <= done_ms AND now_ms BETWEEN began_ms - 1 AND done_ms + 1)
  UNION ALL SELECT topic, "partition", 'appears twice' FROM facts GROUP BY recheck, topic, "partition" HAVING count(*) > 1
  UNION ALL SELECT topic, "partition", 'F1: the floor is beyond a commit of ' || "by" FROM commit
    WHERE floor > CASE WHEN kind <> 'commit' THEN least("offset", epoch_end) ELSE "offset" END AND kind IN ('commit', 'gone')
  UNION ALL SELECT topic, "partition", 'F1: the floor is of ' || floor_by || ', who has no commit' FROM commit
    GROUP BY ALL HAVING NOT bool_or("by" = floor_by) AND NOT bool_or(starts)
  UNION ALL SELECT topic, "partition", 'F2: no commit of ' || "by" FROM commit WHERE kind = 'missing' AND s IS DISTINCT FROM h
  UNION ALL SELECT topic, "partition", 'F4: no group has committed' FROM facts WHERE floor IS NOT NULL AND h IS NOT NULL
    AND len(commits) = 0 AND NOT contains(coalesce(txt(odd, '$.floor.notes'), ''), '"code":"F2"')
  UNION ALL SELECT topic, "partition", 'F5: a commit of another log, by ' || "by" FROM commit
    WHERE kind = 'refused' OR (kind = 'commit' AND ("offset" > h
        OR (epoch IS DISTINCT FROM leader_epoch AND epoch IS NOT NULL AND coalesce("offset" > epoch_end, true))))
  UNION ALL SELECT topic, "partition", format('a trim to {}: plan and facts allow {}', request_offset, may) FROM results
    WHERE request_offset > coalesce(may, -1)
  UNION ALL SELECT topic, "partition", 'not sent within 30 s of its recheck' FROM results
    WHERE based AND request_offset IS NOT NULL
        AND coalesce(sent_ms NOT BETWEEN done_ms AND began_ms + 30000, answer IS NOT NULL OR outcome = 'trimmed')
  UNION ALL SELECT topic, "partition", 'trimmed, and not read back' FROM results
    WHERE outcome = 'trimmed' AND (request_offset IS NULL OR coalesce(log_start_after, -1) < request_offset)
  UNION ALL SELECT topic, "partition", format('counts {} records', records) FROM results WHERE records IS DISTINCT FROM
    CASE WHEN outcome IN ('trimmed', 'unverified') AND request_offset IS NOT NULL THEN request_offset - coalesce(s, 0) ELSE 0 END
  UNION ALL -- G6 counts what the audit log says: its end, and the evidence
    SELECT NULL, NULL, format('G6: {} records were trimmed, the audit log says {}', told, logged) FROM (
        SELECT (SELECT sum(records) FROM results WHERE final AND outcome = 'trimmed') AS told, sum(num(line, '$.totals.records')) AS logged
        FROM read_csv(getvariable('run') || '/../../audit*.jsonl', columns = {'line': 'VARCHAR'}, delim = '', quote = '', escape = '', header = false)
        WHERE txt(line, '$.event') = 'end' AND txt(line, '$.run') = parse_filename(getvariable('run'))
    ) WHERE coalesce(told, 0) <> coalesce(logged, told, 0)
) ORDER BY ALL;
