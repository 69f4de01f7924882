# Completion for fish, made by "qwick completion fish".
#
# __qwick_verbs       all verbs
# __qwick_aliases     other names, NAME=VERB
# __qwick_with_value  options that take the next word as their value; VERB:-x, if
#                     a letter does so only behind this verb
# __qwick_default     the options of the default verb

# Read words. Print three lines: the verb (empty: it may still come), the number
# of its arguments, and 1 if the last option waits for its value.
function __qwick_scan
    set -l verb
    set -l waits
    set -l plain
    set -l n_args 0
    for word in $argv
        if test -n "$waits"
            set waits
        else if test -n "$plain"; or not string match -qr -- '^-.' "$word"
            set -l meant
            if test -z "$verb"
                contains -- "$word" $__qwick_verbs; and set meant $word
                for alias in $__qwick_aliases
                    set -l parts (string split = $alias)
                    test "$word" = $parts[1]; and set meant $parts[2]
                end
            end
            if test -n "$meant"
                set verb $meant
            else
                test -n "$verb"; or set verb generate
                set n_args (math $n_args + 1)
            end
        else if test "$word" = --
            set plain 1
            test -n "$verb"; or set verb generate
        else if string match -q -- '--*' $word
            contains -- $word $__qwick_with_value; and set waits 1
        else
            set -l letters (string split '' -- (string sub -s 2 -- $word))
            while set -q letters[1]
                if contains -- -$letters[1] $__qwick_with_value
                    or contains -- "$verb:-$letters[1]" $__qwick_with_value
                    test (count $letters) = 1; and set waits 1
                    break
                end
                set -e letters[1]
            end
        end
    end
    printf '%s\n' "$verb" $n_args "$waits"
end

# Read the words before the cursor; if the verb is not among them, read the words
# behind it as well. Print what __qwick_scan prints.
function __qwick_read
    set -l before (commandline -opc)
    set -l n (count $before)
    set -e before[1]
    set -l state (__qwick_scan $before)
    set -l current (commandline -ct)
    set -l after (commandline -o)
    if test -z "$state[1]" -a (count $after) -gt (math $n + 1)
        if test -n "$state[3]"; or string match -q -- '-*' "$current"
            test -z "$state[3]"; or set -a before value
            set after $after[(math $n + 2)..-1]
            set state[1] (__qwick_scan $before $after)[1]
        end
    end
    printf '%s\n' "$state[1]" $state[2] "$state[3]"
end

# Whether the options of one of these verbs may stand here. Before the verb,
# options of all verbs may stand: those that the default verb lacks are offered
# if none of its own begins so.
function __qwick_for
    set -l state (__qwick_read)
    if test -n "$state[1]"
        contains -- $state[1] $argv
        return
    end
    contains generate $argv; and return 0
    set -l before (commandline -opc)
    if string match -q -- '-*' $before[-1]
        not contains -- $before[-1] $__qwick_default
        return
    end
    set -l current (string replace -r '=.*' '' -- (commandline -ct))
    string match -q -- '--*' "$current"
    and not string match -q -- "$current*" $__qwick_default
end

# Whether a verb may stand here.
function __qwick_before_verb
    set -l state (__qwick_read)
    test -z "$state[1]" -a -z "$state[3]"
end

# Whether the first argument of a verb may stand here.
function __qwick_argument
    set -l state (__qwick_read)
    test "$state[1]" = $argv[1] -a "$state[2]" = 0 -a -z "$state[3]"
end

# Print the names of models with their ids, or in the other order.
function __qwick_models
    set -l program (commandline -opc)[1]
    set program (string replace -r '^~/' "$HOME/" -- $program)
    type -q -- $program; or set program qwick
    set -l lines ($program models --names --no-config </dev/null 2>/dev/null)
    if string match -q '*/*' -- $argv[1]
        set lines (string replace -r '^([^\t]*)\t(.*)$' '$2\t$1' -- $lines)
    end
    printf '%s\n' $lines
end

# Print the names of your prompt templates.
function __qwick_templates
    set -l base $XDG_CONFIG_HOME
    test -n "$base"; or set base ~/.config
    for file in $base/qwick/prompts/*.txt
        string replace -r '^.*/(.*)\.txt$' '$1' -- $file
    end
end

# Print values of these kinds: file, dir, model, template, verb, or =WORD.
function __qwick_value
    set -l value (string replace -r '^(--[^=]*=|-[^-])' '' -- (commandline -ct))
    for kind in $argv
        switch $kind
            case file
                __fish_complete_path $value
            case dir
                __fish_complete_directories "$value" ''
            case model
                __qwick_models "$value"
                # fish takes ":" for the end of a path
                string match -q '*:*' -- "$value"; and continue
                __fish_complete_directories "$value" ''
                __fish_complete_path "$value" | string match '*.gguf*'
            case template
                __qwick_templates
                __fish_complete_directories "$value" ''
                __fish_complete_path "$value" | string match '*.txt*'
            case verb
                printf '%s\n' $__qwick_verbs (string replace -r '=.*' '' $__qwick_aliases)
            case '=*'
                string sub -s 2 -- $kind
        end
    end
end

complete -c qwick -e
complete -c qwick -f
@TABLES@
