#!/usr/bin/env bash
# Find out from evidence alone when records were deleted, by whom, by which rule, and which commit allowed it. Needs no cluster.
#
#   who-deleted.sh TOPIC [--partition N --offset N] [--public-key KEY]      changes nothing
#
#   --partition, --offset  only the run that deleted this record
#   --public-key KEY       the runs must be signed by this key
#
# KRETAIN_STATE_DIR is kretain's, or a copy of it. Needs DuckDB: duckdb, or Python's module. See who-deleted.md.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

topic='' partition=null offset=null key=''
while [ $# -gt 0 ]; do
    case $1 in
    --partition) partition=$(given "$@") && number "$1" "$partition" && shift ;;
    --offset) offset=$(given "$@") && number "$1" "$offset" && shift ;;
    --public-key) key=$(given "$@") && shift ;;
    -h | --help) usage && exit ;;
    -*) wrong "$1: no such option" ;;
    *) [ -z "$topic" ] || wrong "one topic at a time" && topic=$1 ;;
    esac
    shift
done
[ -n "$topic" ] || wrong "which topic?"
[[ $topic =~ ^[A-Za-z0-9._-]+$ ]] || wrong "$topic is not the name of a topic"
[ -n "${KRETAIN_STATE_DIR:-}" ] || stop 2 "Where is the evidence? Set KRETAIN_STATE_DIR."

query() { # DATABASE'S SQL: prints its rows
    if command -v duckdb >/dev/null; then
        duckdb -c "$1"
    elif python3 -c 'import duckdb' 2>/dev/null; then
        python3 -c 'import duckdb, sys; duckdb.sql(sys.argv[1]).show(max_width=250, max_rows=1000)' "$1"
    else
        stop 2 "DuckDB is missing: install duckdb, or Python's module (pip install duckdb)."
    fi
}

step "1. When, and by whom"
run kretain history "$topic"
runs=$(kretain history "$topic" --output json | value '"\n".join(one["run"] for one in d["runs"] if one["records"])')
[ -n "$runs" ] || stop 1 "No run of kretain deleted anything of $topic: see who-deleted.md, It was not kretain."

step "2. Is that proven?"
for one in $runs; do
    run kretain verify "$one" ${key:+--public-key "$key"} ||
        stop 1 "Evidence or log were changed, or are not complete: do not rely on them. See who-deleted.md, Not proven."
done

step "3. By which rule, and which commit allowed it"
query "
SET VARIABLE dir = '${KRETAIN_STATE_DIR//\'/\'\'}';
SELECT parse_path(r.filename)[-2] AS run, r.\"partition\" AS part, f.log_start AS \"from\", r.request_offset AS until,
    make_timestamp_ms(r.sent_ms) AS sent_utc, f.rule, f.floor_by AS behind, f.floor AS \"committed\",
    r.request_offset - least(greatest(f.log_start, coalesce(f.floor, 0)), r.request_offset) AS unread
FROM read_parquet(getvariable('dir') || '/*/evidence/*/results.parquet', filename = true) r
JOIN read_parquet(getvariable('dir') || '/*/evidence/*/*-facts.parquet', filename = true) f
    ON parse_dirpath(r.filename) = parse_dirpath(f.filename) AND r.recheck = f.recheck
        AND r.topic = f.topic AND r.\"partition\" = f.\"partition\"
WHERE r.topic = '$topic' AND r.outcome IN ('trimmed', 'unverified') AND r.\"partition\" = coalesce($partition, r.\"partition\")
    AND coalesce($offset, f.log_start) BETWEEN f.log_start AND r.request_offset - 1
ORDER BY sent_utc, part"
note "committed: up to where the group that was furthest behind had read. unread: how many of the records it had not."

step "4. Whose policy"
# shellcheck disable=SC2086  # names of runs have no spaces
cat "$KRETAIN_STATE_DIR"/*/audit*.jsonl | python3 -c '
import json, sys
wanted = sys.argv[1:]
for line in sys.stdin:
    one = json.loads(line)
    if one["event"] == "run" and one["run"] in wanted:
        policy, approval = one["policy"], one.get("approval")
        told = {"run": one["run"], "user": one["user"], "host": one["host"], **policy, "approval": approval}
        print("  ", json.dumps(told))' $runs
note "digest is of the policy file: who-deleted.md finds its commit. To bring the records back: undo.sh $topic"
