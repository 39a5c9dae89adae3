function __kretain_complete
    set -l words (commandline -opc)
    set -l found (env _KRETAIN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args _TYPER_COMPLETE_ARGS=(commandline -cp) $words[1] 2>/dev/null | string match --regex '.+')
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
