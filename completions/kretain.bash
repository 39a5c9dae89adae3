_kretain_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" word before="" reply
    word="${line##*[[:space:]]}"
    case "$word" in
        [\"\']*) ;;
        *)
            [[ $word == --*=* ]] && word="${word#*=}"
            # What stands before the last colon is on the line already: for bash it is a word of its own.
            [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && before="${word%:*}:"
            ;;
    esac
    COMPREPLY=()
    while IFS= read -r reply; do
        [[ $reply != $'\t' ]] || compopt +o default 2>/dev/null
        reply="${reply%%$'\t'*}"
        [[ -n $reply ]] || continue
        [[ $word == [\"\']* ]] || printf -v reply %q "$reply"
        COMPREPLY+=("${reply#"$before"}")
    done < <(env _KRETAIN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS="$line" "${1/#\~/$HOME}" 2>/dev/null)
}

complete -o default -o nosort -F _kretain_completion kretain 2>/dev/null ||
    complete -o default -F _kretain_completion kretain
