# Functions that the runbooks share. They source this file; by itself it does nothing.
# shellcheck shell=bash

page=$(basename "$0" .sh).md
yes='' told=''
# Where a runbook leaves what it saves: plans, positions, settings.
saves=${RUNBOOK_DIR:-$PWD}
now=$(date -u +%Y%m%dT%H%M%SZ)

ended() { # a command that failed ends the runbook, too
    local code=$?
    [ "$code" = 0 ] || [ -n "$told" ] || printf '\n!! A command ended with %s: see %s.\n' "$code" "$page" >&2
}
trap ended EXIT

usage() { # prints the comment at the top of the runbook
    sed -n '2,/^$/ s/^# \{0,1\}//p' "$0"
}

wrong() { # TEXT: the command line is wrong
    told=1
    printf '%s\n\n' "$*" >&2
    usage >&2
    exit 2
}

given() { # OPTION [VALUE]…: prints an option's value
    [ $# -gt 1 ] || wrong "$1: needs a value"
    printf '%s' "$2"
}

number() { # OPTION VALUE: checks that it is an integer
    case $2 in '' | *[!0-9]*) wrong "$1: $2 is not an integer" ;; esac
}

step() { printf '\n== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }

stop() { # CODE TEXT: ends the runbook
    local code=$1
    shift
    told=1
    printf '\n!! %s\n' "$*" >&2
    exit "$code"
}

run() { # shows a command, and runs it
    local shown=$*
    printf '\n$ %s\n' "${shown#kafka }"
    "$@"
}

sure() { # QUESTION: continues only if the answer is yes
    local answer
    if [ -n "$yes" ]; then return; fi
    [ -t 0 ] || stop 6 "Not confirmed: no terminal to ask on. Pass --yes to answer."
    read -r -p "$1 [y/N] " answer
    [ "$answer" = y ] || stop 6 "Not confirmed; nothing was changed."
}

value() { # EXPRESSION ARGUMENT…: prints a Python expression over the JSON in stdin (d) and the arguments (a)
    python3 -c '
import datetime, json, sys
def hours_since(text):
    if text is None:
        return ""
    then = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int((datetime.datetime.now(datetime.timezone.utc) - then).total_seconds() / 3600)
d, a = json.load(sys.stdin), sys.argv[2:]
print(eval(sys.argv[1]))' "$@"
}

kafka() { # TOOL ARGUMENT…: runs one of Kafka's own tools against the cluster
    local tool=$1 config=${KRETAIN_COMMAND_CONFIG:-}
    shift
    [ -n "${KRETAIN_BOOTSTRAP_SERVER:-}" ] || stop 2 "Kafka's own tools need an address: set KRETAIN_BOOTSTRAP_SERVER."
    command -v "$tool" >/dev/null || stop 2 "$tool is not on the PATH: it is in bin/ of Kafka."
    "$tool" --bootstrap-server "$KRETAIN_BOOTSTRAP_SERVER" ${config:+--command-config "$config"} "$@"
}

settings_of() { # TOPIC: prints the topic's own settings, one key=value per line
    kafka kafka-configs.sh --describe --entity-type topics --entity-name "$1" |
        sed -n 's/^ *\([a-z.]*\)=\(.*\) sensitive=.*$/\1=\2/p'
}

save_settings() { # TOPIC FILE KEY…: saves these settings, so that put_back can restore them
    local topic=$1 file=$2 own key
    shift 2
    own=$(settings_of "$topic")
    printf '%s\n' "$topic" >"$file"
    for key in "$@"; do # a key alone: it was not set
        grep "^$key=" <<<"$own" >>"$file" || printf '%s\n' "$key" >>"$file"
    done
    note "The former settings are in $file."
}

set_setting() { # TOPIC KEY=VALUE: a list of several values needs brackets
    local key=${2%%=*} is=${2#*=}
    case $is in *,*) is="[$is]" ;; esac
    run kafka kafka-configs.sh --alter --entity-type topics --entity-name "$1" --add-config "$key=$is"
}

put_back() { # FILE: sets what save_settings saved
    local topic line
    {
        read -r topic
        while read -r line; do
            case $line in
            *=*) set_setting "$topic" "$line" ;;
            *) run kafka kafka-configs.sh --alter --entity-type topics --entity-name "$topic" --delete-config "$line" ;;
            esac
        done
    } <"$1"
}
