#!/usr/bin/env bash
# Move a topic from the brokers' own retention to kretain, one step at a time, and back.
#
#   broker-retention.sh check TOPIC                      checks that all is ready; changes nothing
#   broker-retention.sh first TOPIC [--yes]              trims one partition
#   broker-retention.sh hand-over TOPIC MS [--yes]       the brokers then keep MS milliseconds (-1: forever)
#   broker-retention.sh back TOPIC FILE [--yes]          restores the brokers' retention from FILE
#
#   --seen DAYS    how long kretain must have watched the groups; default 7
#   --yes          answer every question with yes
#
# Cluster, policy and memory are kretain's: KRETAIN_BOOTSTRAP_SERVER or KRETAIN_CONTEXT, KRETAIN_COMMAND_CONFIG,
# KRETAIN_POLICY, KRETAIN_STATE_DIR. hand-over and back use Kafka's kafka-configs.sh, which needs
# KRETAIN_BOOTSTRAP_SERVER. Former settings are saved in RUNBOOK_DIR (the current folder). See broker-retention.md.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

words='' seen=7
while [ $# -gt 0 ]; do
    case $1 in
    --seen) seen=$(given "$@") && shift ;;
    --yes) yes=1 ;;
    -h | --help) usage && exit ;;
    --*) wrong "$1: no such option" ;;
    *) words="$words $1" ;;
    esac
    shift
done
number --seen "$seen"
# shellcheck disable=SC2086  # names of topics have no blanks
set -- $words
what=${1:-} topic=${2:-} third=${3:-}
case $what:$# in check:2 | first:2 | hand-over:3 | back:3) ;; *) wrong "check, first, hand-over or back, and a topic" ;; esac

retention() { # prints the topic's current retention.ms; -1: forever
    kretain advise "$topic" --output json |
        value 'd["topics"][0]["settings"]["retention.ms"]'
}

check() {
    local since code=0
    step "1. Rights and versions"
    run kretain doctor "$topic"
    step "2. The policy"
    run kretain policy check
    run kretain policy show "$topic"
    step "3. What brokers do today"
    run kretain advise "$topic"
    step "4. How long kretain has watched"
    since=$(kretain ledger show "$topic" --output json | value 'hours_since(d["since"])')
    [ -n "$since" ] || stop 6 "kretain has not watched this topic yet. Start kretain watch -p POLICY, without --trim, for $seen days."
    note "For $((since / 24)) days."
    [ "$since" -ge "$((24 * seen))" ] || stop 6 "It should be $seen days: kretain cannot know a group that was gone before it watched."
    step "5. What it would trim"
    run kretain plan "$topic" --fail-on-hold || code=$?
    case $code in
    0) ;;
    4) stop 4 "Partitions are on hold. Resolve each reason above first, or leave the topic unchanged." ;;
    *) stop "$code" "kretain plan failed." ;;
    esac
    step "6. What it would keep"
    run kretain forecast "$topic"
}

first() {
    check
    step "7. One partition"
    run kretain trim "$topic" --max-partitions 1 ${yes:+--yes}
    run kretain history --limit 1
}

hand_over() {
    local now_ms here trims
    case $third in -1) ;; *) number MS "$third" ;; esac
    check
    step "7. Does anything trim?"
    run kretain history --last 1d
    here=$(kretain ledger show "$topic" --output json | value 'd["cluster"]["id"]')
    trims=$(kretain history --last 1d --output json |
        value 'sum(one["exit"] == 0 and one["cluster"] == a[0] for one in d["runs"])' "$here")
    [ "$trims" -gt 0 ] || stop 6 "In this state directory no trim has worked within a day: start kretain watch --trim first."
    step "8. The brokers keep longer"
    now_ms=$(retention)
    if [ "$now_ms" = -1 ] || { [ "$third" != -1 ] && [ "$third" -lt "$now_ms" ]; }; then
        stop 6 "They keep $now_ms ms now (-1: forever), and $third is less: that would delete records."
    fi
    save_settings "$topic" "$saves/$topic-retention-$now.txt" retention.ms
    sure "Set retention.ms of $topic to $third?"
    set_setting "$topic" "retention.ms=$third"
    step "9. The result"
    run kretain policy check
    run kretain plan "$topic"
    note "To go back: broker-retention.sh back $topic $saves/$topic-retention-$now.txt"
}

back() {
    local old
    [ "$(sed -n 1p "$third")" = "$topic" ] || stop 1 "$third is not of topic $topic."
    old=$(sed -n 's/^retention\.ms=//p' "$third")
    step "1. What the brokers would delete then"
    case $old in
    '') note "The brokers' default applies again (log.retention.hours and others): kretain cannot tell what goes." ;;
    -1) note "Nothing: they kept it forever." ;;
    *) run kretain plan "$topic" --no-policy --older-than "${old}ms" --unconsumed trim ;;
    esac
    step "2. Restore the brokers' retention"
    sure "Set it? Older records go within minutes, read or not. This can't be undone."
    put_back "$third"
    run kretain policy check
}

case $what in # none of them behind && or ||: that would let each step in it fail
check)
    check
    note "All is ready: broker-retention.sh first $topic"
    ;;
first)
    first
    note "Check the result. Then start kretain watch --trim, and: broker-retention.sh hand-over $topic MS"
    ;;
hand-over) hand_over ;;
back) back ;;
esac
