_xapi_completion() {
    local IFS=$'\n' program=${1/#\~\//$HOME/} words=() position=$COMP_CWORD last= index
    for index in "${!COMP_WORDS[@]}"; do
        if [[ ${COMP_WORDS[index]} == '=' && $last == --* ]]; then
            if ((index == COMP_CWORD)); then
                words+=('')
            elif ((index < COMP_CWORD)); then
                ((position -= 1))
            fi
        else
            last=${COMP_WORDS[index]}
            words+=("$last")
        fi
    done
    COMPREPLY=( $( env COMP_WORDS="${words[*]}" \
                   COMP_CWORD=$position \
                   _XAPI_COMPLETE=complete_bash "$program" 2>/dev/null ) )
    return 0
}

complete -o default -F _xapi_completion xapi
