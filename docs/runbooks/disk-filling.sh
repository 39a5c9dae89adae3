#!/usr/bin/env bash
# A broker's disk is filling: trim at once what the policy allows, and show what blocks more.
#
#   disk-filling.sh [--below PERCENT] [--keep DURATION] [--wait SECONDS] [--even-so] [--yes]
#
#   --below PERCENT   done once every disk is below it; default 85
#   --keep DURATION   if the policy frees too little: also trim what every consumer has read, except the last DURATION (1h)
#   --wait SECONDS    how long to wait for the space; default 900
#   --even-so         continue although a broker or a log dir does not answer
#   --yes             trim without asking
#
# Cluster, policy and memory are kretain's: KRETAIN_BOOTSTRAP_SERVER or KRETAIN_CONTEXT, KRETAIN_COMMAND_CONFIG,
# KRETAIN_POLICY, KRETAIN_STATE_DIR. Plans are saved in RUNBOOK_DIR (the current folder). See disk-filling.md.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

below=85 keep='' wait=900 even_so=''
while [ $# -gt 0 ]; do
    case $1 in
    --below) below=$(given "$@") && shift ;;
    --keep) keep=$(given "$@") && shift ;;
    --wait) wait=$(given "$@") && shift ;;
    --even-so) even_so=1 ;;
    --yes) yes=1 ;;
    -h | --help) usage && exit ;;
    *) wrong "$1: no such option" ;;
    esac
    shift
done
number --below "$below"
number --wait "$wait"

look() { # sets fullest, the fullest disk's percentage, and unknown, the brokers that do not report it
    local disks code=0
    disks=$(kretain disk --quiet --output json) || code=$?
    [ "$code" = 0 ] || [ "$code" = 5 ] || stop "$code" "Cannot read the disks: see kretain doctor."
    unknown=$(value '", ".join(str(one["broker"]) for one in d["disks"] if one["used_bytes"] is None)' <<<"$disks")
    fullest=$(value 'max((int(100 * one["used_bytes"] / one["total_bytes"]) for one in d["disks"]
        if one["used_bytes"] is not None), default=0)' <<<"$disks")
    if [ -n "$unknown" ] && [ -z "$even_so" ]; then
        stop 5 "Disk usage of broker $unknown unknown: fix that first, or pass --even-so."
    fi
}

ends_if_below() {
    note "The fullest known disk is at $fullest % (limit: $below %)."
    [ "$fullest" -lt "$below" ] || return 0
    [ -z "$unknown" ] || stop 5 "The disks of broker $unknown are unknown."
    note "Done: no disk is above it."
    exit 0
}

trim() { # NAME FLAG…: plans, saves the plan, carries it out, and waits for the space
    local plan=$saves/disk-filling-$now-$1.json code=0 until
    shift
    run kretain plan --out "$plan" --detailed-exitcode "$@" || code=$?
    case $code in
    3) ;;
    0) note "Nothing to trim." && return ;;
    *) stop "$code" "kretain plan failed." ;;
    esac
    code=0
    run kretain trim --plan "$plan" --wait-lock 2m ${yes:+--yes} "$@" || code=$?
    case $code in
    0) ;;
    5) note "Not all of it could be trimmed: see the report." ;;
    6) stop 6 "The trim was refused, and nothing was trimmed. The plan: kretain show $plan" ;;
    *) stop "$code" "The trim ended early: kretain history shows what was done." ;;
    esac
    note "Brokers free the space a minute after their next check: waiting up to $wait s."
    until=$((SECONDS + wait))
    look
    while [ "$fullest" -ge "$below" ] && [ "$SECONDS" -lt "$until" ]; do
        sleep "$((wait / 60 + 1))"
        look
    done
}

step "1. How full the disks are"
run kretain disk || [ $? = 5 ]
look
ends_if_below

step "2. What the policy allows"
trim policy
ends_if_below

step "3. What every consumer has read"
if [ -n "$keep" ]; then
    trim read --consumed-after "$keep"
    ends_if_below
else
    code=0
    run kretain plan --consumed-after 1h --detailed-exitcode || code=$?
    case $code in
    3) note "Nothing of that was trimmed. To trim it, give --keep 1h." ;;
    0) note "Nothing." ;;
    *) stop "$code" "kretain plan failed." ;;
    esac
fi

step "4. What is in the way"
run kretain offsets --unread
run kretain groups
stop 5 "The fullest disk is at $fullest %. See disk-filling.md: Not enough."
