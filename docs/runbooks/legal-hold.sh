#!/usr/bin/env bash
# Legal hold: keep kretain and the brokers from deleting anything of a topic until the hold is lifted.
#
#   legal-hold.sh set TOPIC REASON [--yes]    writes the hold into the policy, and stops the brokers' own retention
#   legal-hold.sh check TOPIC                 verifies the hold; changes nothing
#   legal-hold.sh lift TOPIC FILE [--yes]     lifts the hold; FILE is what set has saved
#
#   --policy-only   leave the brokers' settings unchanged
#   --yes           answer every question with yes
#
# Cluster, policy and memory are kretain's: KRETAIN_BOOTSTRAP_SERVER or KRETAIN_CONTEXT, KRETAIN_COMMAND_CONFIG,
# KRETAIN_STATE_DIR. KRETAIN_POLICY names the policy file, which is changed. Without --policy-only it uses
# Kafka's kafka-configs.sh, which needs KRETAIN_BOOTSTRAP_SERVER. Former settings are saved in RUNBOOK_DIR (the
# current folder). See legal-hold.md.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

what=${1:-} topic=${2:-}
case $what in
set | lift) [ $# -ge 3 ] || wrong "$what: a topic, and a reason or a file" && third=$3 && shift 3 ;;
check) [ $# -ge 2 ] || wrong "check: a topic" && shift 2 ;;
-h | --help) usage && exit ;;
*) wrong "set, check or lift" ;;
esac
policy_only=''
while [ $# -gt 0 ]; do
    case $1 in
    --policy-only) policy_only=1 ;;
    --yes) yes=1 ;;
    *) wrong "$1: no such option" ;;
    esac
    shift
done
policy=$(readlink -f "${KRETAIN_POLICY:?names the policy file}")
case $topic in
'' | *[!A-Za-z0-9._-]*) wrong "$topic: a topic's name, in full" ;;
esac
begins="# legal hold of $topic" ends="# end of the legal hold of $topic"

held_here() { # whether this runbook has written a hold of the topic into the policy
    awk -v line="$begins" '{ sub(/^ +/, "") } $0 == line { found = 1 } END { exit !found }' "$policy"
}

holds() { # FILE: prints the hold of the topic by that policy, nothing without one
    kretain policy show "$topic" --policy "$1" --output json |
        value '[one["value"] or "" for one in d["settings"] if one["key"] == "hold"][0]'
}

replace() { # WANTED: replaces the policy by stdin, if kretain reads it and its hold is WANTED
    local new=$policy.new is
    cp -p "$policy" "$new" # so that owner and mode stay
    cat >"$new"
    is=$(holds "$new") || is="unreadable"
    if [ "$is" != "$1" ]; then
        rm "$new"
        stop 1 "With the new policy the hold would be '$is'. The policy is unchanged: edit it by hand."
    fi
    cp -p "$policy" "$saves/$(basename "$policy")-$now"
    mv "$new" "$policy" # at once: a policy is never incomplete
    note "The former policy: $saves/$(basename "$policy")-$now"
}

with_hold() { # prints the policy with the hold as its last entry, which overrides all others
    local indent
    indent=$(sed -n 's/^\( *\)- match:.*/\1/p' "$policy" | tail -n 1)
    cat "$policy"
    [ -z "$(tail -c 1 "$policy")" ] || echo
    printf '%s%s\n' "$indent" "$begins"
    printf '%s- match: "%s"\n' "$indent" "$topic"
    printf '%s  hold: %s\n' "$indent" "$(python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$third")"
    printf '%s%s\n' "$indent" "$ends"
}

without_hold() {
    awk -v first="$begins" -v last="$ends" '
        { line = $0; sub(/^ +/, "", line) }
        line == first { inside = 1 }
        !inside
        line == last { inside = 0 }' "$policy"
}

check() {
    local plan loose
    step "Does kretain hold it?"
    run kretain policy show "$topic"
    run kretain plan "$topic"
    plan=$(kretain plan "$topic" --quiet --output json)
    loose=$(value '" ".join(str(one["partition"]) for one in d["partitions"] if one["topic"] == a[0] and not (
        one["action"] == "skip" or "G7" in [why["code"] for why in one["reasons"]]))' "$topic" <<<"$plan")
    [ -z "$loose" ] || stop 5 "Partitions $loose are not on legal hold (G7)."
    note "Every partition is on hold in kretain. Running trims and watches see it before their next batch."
    step "Do the brokers keep it?"
    run kretain advise "$topic"
    loose=$(kretain advise "$topic" --output json | value '", ".join(
        key + "=" + str(is_) for key, is_ in d["topics"][0]["settings"].items()
        if (key in ("retention.ms", "retention.bytes") and is_ != -1)
        or (key == "cleanup.policy" and "compact" in is_))')
    [ -z "$loose" ] || stop 5 "No: $loose. The brokers still delete. See legal-hold.md: The brokers."
    note "They delete nothing of it by age or size, and do not compact it."
}

case $what in
set)
    step "1. The policy"
    ! held_here || stop 6 "The topic has a hold already: legal-hold.sh check $topic"
    last=$(sed -n 's/^\([A-Za-z.]*\):.*/\1/p' "$policy" | tail -n 1)
    if [ "$last" != topics ] || ! grep -q '^topics: *$' "$policy"; then
        stop 6 "topics is not the last part of $policy, with one entry per line. Add a last entry by hand: - {match: $topic, hold: …}"
    fi
    with_hold | tail -n 4
    sure "Add that to $policy?"
    with_hold | replace "$third"
    if [ -z "$policy_only" ]; then
        step "2. The brokers"
        save_settings "$topic" "$saves/$topic-hold-$now.txt" retention.ms retention.bytes
        set_setting "$topic" retention.ms=-1
        set_setting "$topic" retention.bytes=-1
        note "To lift it: legal-hold.sh lift $topic $saves/$topic-hold-$now.txt"
    fi
    check
    ;;
check) check ;;
lift)
    step "1. What the brokers would delete"
    [ "$(sed -n 1p "$third")" = "$topic" ] || stop 1 "$third is not of topic $topic."
    held_here || stop 1 "$policy has no hold of $topic by this runbook: remove the hold by hand."
    old=$(sed -n 's/^retention\.ms=//p' "$third")
    case $old in
    '') note "The brokers' default applies again (log.retention.hours and others): older records go within minutes." ;;
    -1) note "Nothing by age: the brokers kept it forever, and will again." ;;
    *)
        run kretain plan "$topic" --no-policy --older-than "${old}ms" --unconsumed trim
        note "The brokers delete that within minutes, read or not. kretain uses the policy again."
        ;;
    esac
    sure "Has the person who ordered the hold lifted it?"
    step "2. The brokers"
    [ -n "$policy_only" ] || put_back "$third"
    step "3. The policy"
    without_hold | replace ''
    run kretain plan "$topic"
    ;;
esac
