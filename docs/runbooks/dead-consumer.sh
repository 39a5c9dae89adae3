#!/usr/bin/env bash
# A consumer group that is gone for good blocks trimming: see what it holds, then let go of it.
#
#   dead-consumer.sh GROUP                        looks, and saves its positions; changes nothing
#   dead-consumer.sh GROUP --release [--yes]      deletes the group and its memory, then trims what it held
#   dead-consumer.sh GROUP --back FILE [--yes]    gives it the saved positions again
#
#   --idle HOURS   how long it must have stood still, as kretain saw it; default 24; 0: don't ask
#   --yes          don't ask
#
# Cluster, policy and memory are those of kretain: KRETAIN_BOOTSTRAP_SERVER or KRETAIN_CONTEXT, KRETAIN_COMMAND_CONFIG,
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

describe() { # sets kind, state, still (hours that it stood still, if that is known) and topics
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
    [ -s "$back" ] || stop 1 "There is nothing in $back."
    cat "$back"
    sure "Give $group these positions, whatever it has now?"
    run kafka kafka-consumer-groups.sh --reset-offsets --group "$group" --from-file "$back" --execute
    run kretain offsets '*' --no-policy --groups --group "$group"
    note "What was trimmed since is gone: where the log starts behind a position, the group begins at the log's start."
    exit 0
fi

step "1. Is it dead?"
run kretain groups --group "$group"
describe
case $kind in
'') stop 1 "There is no group $group, and none is remembered: it blocks nothing." ;;
gone) note "It is gone already, and counts as kretain remembers it (F6)." ;;
classic | consumer)
    case $state in
    Empty | Dead) ;;
    *) stop 6 "It is $state: somebody is in it. Mend that consumer; it is not dead." ;;
    esac
    if [ "$idle" -gt 0 ]; then
        [ -n "$still" ] || stop 6 "For how long it has stood still is unknown: look again in $idle h (--idle)."
        [ "$still" -ge "$idle" ] || stop 6 "It has stood still for $still h, as far as kretain saw, and should for $idle h (--idle)."
    fi
    ;;
*) stop 6 "It is of type $kind: this runbook is for consumer groups." ;;
esac

step "2. What it holds"
run kretain offsets --unread --group "$group"
alone=$(kretain groups --output json |
    value '[one["alone_bytes"] for one in d["groups"] if one["group"] == a[0]][0]' "$group")
note "Bytes that nobody else has yet to read (None: unknown): $alone"
positions=$saves/$(tr -c 'A-Za-z0-9._\n-' _ <<<"$group")-$now.csv
save_positions "$positions"
note "Its $(wc -l <"$positions") positions are in $positions."
if [ -z "$release" ]; then
    note "Nothing was changed. If nobody misses it: dead-consumer.sh $group --release"
    exit 0
fi

step "3. Let go of it"
sure "Delete the group $group, and let what only it holds be trimmed?"
if [ "$kind" != gone ]; then
    run kafka kafka-consumer-groups.sh --delete --group "$group" || note "That ended with $?."
    describe
    case $kind in
    '' | gone) ;;
    *) stop 6 "The group is still there ($state): it came back, or must not be deleted. Nothing was trimmed." ;;
    esac
fi
[ "$kind" != gone ] || run kretain groups forget "$group" --yes

step "4. What it held"
plan=$saves/dead-consumer-$now.json code=0
run kretain plan --out "$plan" --detailed-exitcode || code=$?
case $code in
3)
    code=0
    run kretain trim --plan "$plan" --wait-lock 2m ${yes:+--yes} || code=$?
    [ "$code" = 0 ] || stop "$code" "The group is gone, and not all of that was trimmed: the next trim takes it, whoever runs it."
    ;;
0) note "There is nothing to trim: others stand there, too, or the policy wants nothing more." ;;
*) stop "$code" "The group is gone, but there is no plan." ;;
esac
note "If it was missed after all: dead-consumer.sh $group --back $positions"
