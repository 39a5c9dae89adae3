#!/usr/bin/env bash
# Release what a dead consumer group holds: look first, then delete the group and trim.
#
#   dead-consumer.sh GROUP                        shows the group and saves its positions; changes nothing
#   dead-consumer.sh GROUP --release [--yes]      deletes the group and its memory, then trims what it held
#   dead-consumer.sh GROUP --back FILE [--yes]    gives it back the saved positions
#
#   --idle HOURS   how long it must not have moved, as far as kretain saw; default 24; 0: do not check
#   --yes          answer every question with yes
#
# Cluster, policy and memory are kretain's: KRETAIN_BOOTSTRAP_SERVER or KRETAIN_CONTEXT, KRETAIN_COMMAND_CONFIG,
# KRETAIN_POLICY, KRETAIN_STATE_DIR. --release and --back use Kafka's kafka-consumer-groups.sh, which needs
# KRETAIN_BOOTSTRAP_SERVER. Positions and plans are saved in RUNBOOK_DIR (the current folder). See dead-consumer.md.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

group='' release='' back='' idle=24
while [ $# -gt 0 ]; do
    case $1 in
    --release) release=1 ;;
    --back) back=$(given "$@") && shift ;;
    --idle) idle=$(given "$@") && shift ;;
    --yes) yes=1 ;;
    -h | --help) usage && exit ;;
    -*) wrong "$1: no such option" ;;
    *) [ -z "$group" ] || wrong "one group at a time" && group=$1 ;;
    esac
    shift
done
number --idle "$idle"
case $group in
'') wrong "which group?" ;;
*[*?[]*) wrong "$group: a group's name, not a pattern" ;;
esac

describe() { # sets kind, state, still (hours without a move, if known) and topics
    local found
    found=$(kretain groups --group "$group" --output json)
    kind=$(value '(d["groups"] or [{"type": ""}])[0]["type"]' <<<"$found")
    state=$(value '(d["groups"] or [{}])[0].get("state") or ""' <<<"$found")
    topics=$(value '"\n".join((d["groups"] or [{"topics": []}])[0]["topics"] or [])' <<<"$found")
    still=$(value 'hours_since((d["groups"] or [{}])[0].get("unmoved_since"))' <<<"$found")
}

save_positions() { # FILE: a line topic,partition,offset each, as kafka-consumer-groups.sh reads them
    local topic
    if [ "$kind" = gone ]; then
        while read -r topic; do
            [ -z "$topic" ] || kretain ledger show "$topic" --output json | value '"\n".join(
                "%s,%d,%d" % (one["topic"], one["partition"], of["offset"])
                for one in d["partitions"] for of in one["groups"] if of["group"] == a[0])' "$group"
        done <<<"$topics"
    else
        kretain offsets '*' --no-policy --groups --group "$group" --output json | value '"\n".join(
            "%s,%d,%d" % (one["topic"], one["partition"], one["committed"])
            for one in d["partitions"] if one["committed"] is not None)'
    fi | sed '/^$/d' >"$1"
}

if [ -n "$back" ]; then
    step "Positions of $group from $back"
    [ -s "$back" ] || stop 1 "$back is empty."
    cat "$back"
    sure "Replace the positions of $group by these?"
    run kafka kafka-consumer-groups.sh --reset-offsets --group "$group" --from-file "$back" --execute
    run kretain offsets '*' --no-policy --groups --group "$group"
    note "Records trimmed since then are gone: there the group begins at the start of the log."
    exit 0
fi

step "1. Is it dead?"
run kretain groups --group "$group"
describe
case $kind in
'') stop 1 "The cluster has no group $group, and kretain remembers none: it blocks nothing." ;;
gone) note "It is gone already, and counts as kretain remembers it (F6)." ;;
classic | consumer)
    case $state in
    Empty | Dead) ;;
    *) stop 6 "The group is $state: it has members, so it is not dead. Fix that consumer." ;;
    esac
    if [ "$idle" -gt 0 ]; then
        [ -n "$still" ] || stop 6 "Idle time unknown: kretain has seen the group only once. Try again in $idle h (--idle)."
        [ "$still" -ge "$idle" ] || stop 6 "The group has been idle for $still h as far as kretain saw; $idle h are required (--idle)."
    fi
    ;;
*) stop 6 "The group has the type $kind: this runbook is for consumer groups." ;;
esac

step "2. What it holds"
run kretain offsets --unread --group "$group"
alone=$(kretain groups --output json |
    value '[one["alone_bytes"] for one in d["groups"] if one["group"] == a[0]][0]' "$group")
note "Bytes that only this group has not read (None: unknown): $alone"
positions=$saves/$(tr -c 'A-Za-z0-9._\n-' _ <<<"$group")-$now.csv
save_positions "$positions"
note "Its $(wc -l <"$positions") positions are in $positions."
if [ -z "$release" ]; then
    note "Nothing was changed. If no team needs it: dead-consumer.sh $group --release"
    exit 0
fi

step "3. Delete it"
sure "Delete the group $group, and trim what only it holds?"
if [ "$kind" != gone ]; then
    run kafka kafka-consumer-groups.sh --delete --group "$group" || note "The command ended with $?."
    describe
    case $kind in
    '' | gone) ;;
    *) stop 6 "The group still exists ($state): it came back, or you may not delete it. Nothing was trimmed." ;;
    esac
fi
[ "$kind" != gone ] || run kretain groups forget "$group" --yes

step "4. Trim what it held"
plan=$saves/dead-consumer-$now.json code=0
run kretain plan --out "$plan" --detailed-exitcode || code=$?
case $code in
3)
    code=0
    run kretain trim --plan "$plan" --wait-lock 2m ${yes:+--yes} || code=$?
    [ "$code" = 0 ] || stop "$code" "The group is gone, and not all of that was trimmed: the next trim takes the rest."
    ;;
0) note "Nothing to trim: other groups hold the same records, or the policy asks for nothing more." ;;
*) stop "$code" "The group is gone, but kretain plan failed." ;;
esac
note "To give it back its positions: dead-consumer.sh $group --back $positions"
