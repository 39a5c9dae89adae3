"""The shell scripts that complete ``kretain``, in place of Typer's own.

Names come from a live cluster, and a consumer group may have any name: the scripts neither evaluate nor split names.
bash splits words at colons, which TOPIC:PARTITION contains. Each TAB makes one call, so that an unreachable cluster
costs its second only once.

All three ask in Typer's format for fish: the line up to the cursor in, ``value<TAB>help`` lines out. If nothing fits,
and the option or argument takes no file, the answer is a single tab: then they offer no files.
"""

from __future__ import annotations

from typing import Any, Final

_ASK: Final = "env _KRETAIN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS="

BASH: Final = r"""
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
    done < <(ASK"$line" "${1/#\~/$HOME}" 2>/dev/null)
}

complete -o default -o nosort -F _kretain_completion kretain 2>/dev/null ||
    complete -o default -F _kretain_completion kretain
""".replace("ASK", _ASK)

ZSH: Final = r"""
#compdef kretain

_kretain() {
    local -a values shown
    local line names
    for line in ${(f)"$(ASK"${words[1,CURRENT-1]} $PREFIX" ${~words[1]} 2>/dev/null)"}; do
        if [[ $line == $'\t' ]]; then
            names=1
            continue
        fi
        values+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  -- }")
    done
    [[ $PREFIX == --*=* ]] && compset -P '*='
    if (( $#values )); then
        compadd -l -V kretain -d shown -a values
    elif [[ -z $names ]]; then
        _files
    fi
}

# Found in fpath this file is the function itself; sourced, it defines one.
if [[ $funcstack[1] == _kretain ]]; then _kretain "$@"; else compdef _kretain kretain; fi
""".replace("ASK", _ASK)

FISH: Final = r"""
function __kretain_complete
    set -l words (commandline -opc)
    set -l found (ASK(commandline -cp) $words[1] 2>/dev/null | string match --regex '.+')
    if test "$found" = \t
        return
    end
    # To fish --group=bill is one word.
    set -l option (string match --regex -- '^--[^=]+=' (commandline -ct))
    if test (count $found) -eq 0
        set found (__fish_complete_path (string replace --regex -- '^--[^=]+=' '' (commandline -ct)))
    end
    for one in $found
        printf '%s%s\n' "$option" $one
    end
end

complete --command kretain --no-files --arguments '(__kretain_complete)'
""".replace("ASK", _ASK)


_FILES: Final = ("FILE", "DIR", "URL")
"""Words in the placeholder of an option or argument that takes a file."""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}
"""The script of each shell."""


def use_ours() -> None:
    """Make ``--install-completion``, ``--show-completion`` and ``completions/`` use these scripts."""
    # Typer has no public way to do this; its version is pinned, and the tests type into real shells.
    from typer import _completion_classes as classes, _completion_shared as shared, core

    ours = {"bash": classes.BashComplete, "zsh": classes.ZshComplete, "fish": classes.FishComplete}
    for shell, its_class in ours.items():
        template = SCRIPTS[shell].replace("%", "%%")  # Typer fills names in
        shared._completion_scripts[shell] = template  # noqa: SLF001
        its_class.source_template = template
    in_lines = classes.FishComplete.format_completion

    def in_one_line(self: Any, item: Any) -> str:
        """Return one candidate and its help; Typer's own wraps the help, and its second line became a candidate."""
        value, tab, text = in_lines(self, item).partition("\t")
        return f"{value}{tab}{' '.join(text.split())}"

    in_full = classes.FishComplete.complete
    files: list[str] = []
    of_value = core._TyperParameter.shell_complete  # noqa: SLF001

    def noting_files(self: Any, ctx: Any, incomplete: str) -> list[Any]:
        """Return a value's candidates, and note that it may be a file."""
        files.extend(word for word in _FILES if word in (self.metavar or ""))
        return of_value(self, ctx, incomplete)

    def without_files(self: Any) -> str:
        """Return the candidates, or a tab if there are none and files are none either."""
        return in_full(self) or ("" if files else "\t")

    core._TyperParameter.shell_complete = noting_files  # type: ignore[method-assign]  # noqa: SLF001
    classes.FishComplete.format_completion = in_one_line  # type: ignore[method-assign]
    classes.FishComplete.complete = without_files  # type: ignore[method-assign]
    classes.completion_init()
