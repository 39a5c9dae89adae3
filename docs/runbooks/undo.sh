#!/usr/bin/env bash
# Bring trimmed records back from the archive. Without an archive there is no undo.
#
#   undo.sh TOPIC [--from URL]                                       shows what was trimmed and archived; changes nothing
#   undo.sh TOPIC [--from URL] --to NEW [--since TIME] [--until TIME] [--yes]    writes the records into the topic NEW
#
#   --from URL             the archive; default: the policy's
#   --since, --until TIME  only records with timestamps in this range: ISO 8601, or Unix ms
#   --yes                  answer every question with yes
#
# Cluster, policy and memory are kretain's: KRETAIN_BOOTSTRAP_SERVER or KRETAIN_CONTEXT, KRETAIN_COMMAND_CONFIG,
# KRETAIN_POLICY, KRETAIN_STATE_DIR. See undo.md.

set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

topic='' from='' to='' since='' until=''
while [ $# -gt 0 ]; do
    case $1 in
    --from) from=$(given "$@") && shift ;;
    --to) to=$(given "$@") && shift ;;
    --since) since=$(given "$@") && shift ;;
    --until) until=$(given "$@") && shift ;;
    --yes) yes=1 ;;
    -h | --help) usage && exit ;;
    -*) wrong "$1: no such option" ;;
    *) [ -z "$topic" ] || wrong "one topic at a time" && topic=$1 ;;
    esac
    shift
done
[ -n "$topic" ] || wrong "which topic?"

step "1. What was trimmed"
run kretain history "$topic" --last 7d
note "kretain history --run ID shows the range of each partition."
run kretain offsets "$topic" --no-policy || note "Unknown: does the topic exist?"

step "2. What the archive has"
has=0
if run kretain archive list ${from:+"$from"} "$topic"; then
    has=$(kretain archive list ${from:+"$from"} "$topic" --output json | value 'len(d["partitions"])')
fi
if [ "$has" = 0 ]; then
    stop 1 "There is no archive of $topic, so no undo. See undo.md, No archive, now: files may still be on the disks."
fi

step "3. Is the archive complete?"
code=0
run kretain archive verify ${from:+"$from"} "$topic" || code=$?
case $code in
0) ;;
5) stop 5 "Files are damaged or missing, named above: nothing was written. See undo.md, Damaged files." ;;
*) stop "$code" "The archive can't be read." ;;
esac
if [ -z "$to" ]; then
    note "It is complete. Create a topic with as many partitions, without retention, and name it with --to:"
    note "kafka-topics.sh --create --topic $topic-restored --partitions N --config retention.ms=-1"
    exit 0
fi

step "4. Back into $to"
run kretain restore "$topic" ${from:+--from "$from"} --to "$to" ${since:+--since "$since"} ${until:+--until "$until"} \
    ${yes:+--yes}
run kretain offsets "$to" --no-policy
note "Offsets are those of $to. $topic is unchanged. To undo this: kafka-topics.sh --delete --topic $to"
