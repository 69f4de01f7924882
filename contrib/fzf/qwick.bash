# Alt-Q in bash: write what you want to do, press the keys, and choose one of several
# commands with fzf. It takes the place of the line, to be read and changed; only Enter
# runs it. Without a choice, the line stays.
#   source /usr/share/doc/qwick/contrib/fzf/qwick.bash    # in ~/.bashrc
#   QWICK_PALETTE=(-m Qwen/Qwen3-4B)                      # other options
# The built-in model answers with commands; tell another one to do so:
#   QWICK_PALETTE=(-m Qwen/Qwen3-4B -s 'Answer with one shell command and nothing else.')

# qwick_palette TEXT: print the chosen command. The likeliest one comes first.
qwick_palette() {
    qwick -q "${QWICK_PALETTE[@]}" --no-stdin --think off --samples 12 --temp 1.2 -n 200 -0 \
        -- "$1" | tr -d '\001-\010\013-\037\177' | sort -z | uniq -zc | sort -z -k 1,1nr |
        sed -z 's/^ *[0-9]* //' | fzf --read0 --no-sort --height 40% --reverse --prompt "$1> "
}

qwick_palette_line() {
    local command
    [[ $READLINE_LINE ]] && command=$(qwick_palette "$READLINE_LINE") && [[ $command ]] || return 0
    READLINE_LINE=$command READLINE_POINT=${#command}
}

[[ $- != *i* ]] || bind -x '"\eq": qwick_palette_line'
