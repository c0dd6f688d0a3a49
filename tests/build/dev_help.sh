#!/usr/bin/env bash
# ./dev COMMAND --help, of every command: prints what the command takes and does nothing. In a copy of the scripts alone, where
# anything that it built or fetched would show.
source "$NYBL_SOURCE_DIR/tests/script.sh"
cd "$NYBL_SOURCE_DIR" || exit 1
copy=$scratch/copy
for file in dev tools/setup.sh tools/private_apt.sh benchmarks/mca.py tests/placed/mutate.py; do
    mkdir -p "$copy/$(dirname "$file")" && cp "$file" "$copy/$file"
done
export XDG_CACHE_HOME=$scratch/cache
mapfile -t commands < <(sed -n 's/^cmd_\([a-z-]*\)() .*/\1/p' dev)

nothing_was_made() {
    [[ ! -e $copy/build && ! -e $XDG_CACHE_HOME ]] || because "$1: something was built or fetched"
}

help_of_every_command() {
    local command flag help
    ((${#commands[@]} > 15)) || because "only ${#commands[@]} commands were found in dev" || return
    for command in "${commands[@]}"; do
        for flag in --help -h; do
            help=$("$copy/dev" "$command" $flag) || because "./dev $command $flag failed" || return
            [[ $help == "usage: ./dev $command "* ]] || because "./dev $command $flag does not say how it is used" || return
        done
        # Behind other arguments too.
        [[ $("$copy/dev" "$command" other --help) == "$help" ]] || because "./dev $command other --help is different" || return
        "$copy/dev" --help | grep -qE "^  $command( |\$)" || because "./dev --help does not list $command" || return
        nothing_was_made "$command --help" || return
    done
}

mistyped_options() {
    local command
    for command in test coverage build ready docs deb engine peers gpu-setup fuzz check format lint clean; do
        ! "$copy/dev" "$command" --no-such-option || because "./dev $command took --no-such-option" || return
        nothing_was_made "$command --no-such-option" || return
    done
    ! "$copy/dev" no-such-command || because "./dev took no-such-command"
}

check "every command of ./dev has a help that does nothing else" help_of_every_command
check "no command of ./dev takes an option that it does not know" mistyped_options
finish
