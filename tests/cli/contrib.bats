#!/usr/bin/env bats
# What is in contrib/ for other programs, with these programs where they are installed.
load helpers

setup() {
    common_setup
    mkdir -p "$T/bin" "$T/home"
    ln -s "$(realpath "$QWICK")" "$T/bin/qwick"
    CONTRIB=$PWD/contrib
    export PATH="$T/bin:$PATH" HOME="$T/home" XDG_CONFIG_HOME="$T/home/.config"
    cd "$T"
}

needs() {
    command -v "$1" >/dev/null || skip "no $1"
}

# stub SCRIPT: a qwick that notes its arguments, one per line, and runs the script.
stub() {
    rm -f "$T/bin/qwick"
    printf '#!/bin/sh\nprintf "%%s\\n" "$@" >"%s/args"\n%s\n' "$T" "$1" >"$T/bin/qwick"
    chmod +x "$T/bin/qwick"
}

# ---- git ----

# A repository with the hook and a staged file. Its editor keeps the message in seen.
repository() {
    needs git
    git init -q repo
    cd repo
    git config user.name me
    git config user.email me@example.org
    install -m 755 "$CONTRIB/git/prepare-commit-msg" .git/hooks/
    printf '#!/bin/sh\ncp "$1" "%s/seen"\n' "$T" >"$T/look"
    printf '#!/bin/sh\ncp "$1" "%s/seen"\nsed -i "1,/^#/s/^# //" "$1"\n' "$T" >"$T/accept"
    chmod +x "$T/look" "$T/accept"
    export GIT_EDITOR="$T/look"
    echo "list all files" >a
    git add a
}

@test "git: the proposal is a comment until it is accepted" {
    repository
    run ! git commit
    [[ $output == *"empty commit message"* ]]
    run -0 grep -n '^# [^ ]' "$T/seen"
    [[ ${lines[0]} == 2:* && ${lines[1]} == "4:# Please enter"* ]]
    proposal=${lines[0]#2:# }
    GIT_EDITOR="$T/accept" git commit -q
    [ "$(git log -1 --format=%B)" = "$proposal" ]
    # as text
    git config qwick.commit text
    echo b >b
    git add b
    git commit -q
    [ "$(git log -1 --format=%s)" = "$(head -n 1 "$T/seen")" ]
    [ -n "$(git log -1 --format=%s)" ]
}

@test "git: messages from elsewhere stay as they are" {
    repository
    git config qwick.commit text
    stub 'echo proposal'
    git commit -q -m mine
    git commit -q --amend
    [ "$(git log -1 --format=%B)" = mine ]
    git commit -q --amend --no-edit
    git checkout -q -b side
    echo side >side
    git add side
    git commit -q -m side
    git checkout -q -
    git merge -q --no-ff side
    [[ $(git log -1 --format=%s) == "Merge branch"* ]]
    git revert HEAD^2 >/dev/null
    [[ $(git log -1 --format=%s) == "Revert"* ]]
    run ! git commit --allow-empty --no-edit
    run ! git commit --allow-empty
    [ ! -e "$T/args" ]
    # a template comes below
    echo "Reviewed-by: me" >"$T/template"
    echo c >c
    git add c
    git commit -q -t "$T/template"
    [ "$(git log -1 --format=%B)" = $'proposal\n\nReviewed-by: me' ]
}

@test "git: nothing stops a commit" {
    repository
    for script in 'exit 3' 'printf proposal; exit 6' 'kill -9 $$' 'printf "\033\007"' ':'; do
        stub "$script"
        rm -f "$T/seen"
        run ! git commit
        [ -s "$T/args" ]
        run ! grep -q proposal "$T/seen"
        run -0 sed -n 2p "$T/seen"
        [[ $output == "# Please enter"* ]]
    done
    rm "$T/bin/qwick"
    run ! git commit
    git commit -q -m anyway
    [ -z "$(find .git -name '*.qwick')" ]
    # a model that is not there
    ln -s "$(realpath "$BATS_TEST_DIRNAME/../..")/$(basename "$QWICK")" "$T/bin/qwick"
    git config qwick.model "$T/no model"
    echo d >d
    git add d
    run ! git commit
    [[ $output == *"no model"*"empty commit message"* ]]
}

@test "git: texts are never commands, and comments have git's form" {
    repository
    git config qwick.model '$(touch model)'
    git config core.commentChar ';'
    echo '$(touch diff) `touch diff`' >'$(touch name)'
    git add .
    stub 'cat >"$0.stdin"; printf "%s\033[31m\tx" "a \$(touch answer) \\\\n & / \`touch answer\`"'
    run ! git commit
    grep -qxF '; a $(touch answer) \\n & / `touch answer`[31mx' "$T/seen"
    grep -qxF '$(touch model)' "$T/args"
    grep -qF '$(touch diff)' "$T/bin/qwick.stdin"
    [ -z "$(find "$T" -name answer -o -name model -o -name diff -o -name name)" ]
    # below the line of "scissors", and with -v
    git config --unset core.commentChar
    run ! git commit -v --cleanup=scissors
    run -0 grep -n '^# .*\(>8\|touch answer\)' "$T/seen"
    [[ ${lines[0]} == *">8"* && ${lines[1]} == *answer* ]]
    # only a beginning of many changes is read
    seq 200000 >many
    git add many
    run ! git commit
    [ "$(wc -c <"$T/bin/qwick.stdin")" -lt 12010 ]
    # and only those that will be committed
    git commit -q -m all
    echo one >one
    echo two >two
    git add one two
    run ! git commit one
    grep -qx +one "$T/bin/qwick.stdin"
    run ! grep -qx +two "$T/bin/qwick.stdin"
}

# ---- vim ----

# vim_run COMMANDS: run them in vim, with the file text; messages go to $T/messages.
vim_run() {
    printf '%s\n' "redir! > $T/messages" "source $CONTRIB/vim/qwick.vim" "$1" \
        'redir END' >"$T/run.vim"
    # -es: exit status 1 after a message of an error
    timeout 60 vim -N -u NONE -i NONE -es -S "$T/run.vim" -c 'qa!' "$T/text" </dev/null || :
}

@test "vim: the answer in a window, or in place of the lines" {
    needs vim
    printf '%s\n' one 'list all files' three >text
    vim_run "let g:qwick_options = ['--greedy']
Qwick list all files
write! $T/window"
    [ "$(<window)" = "$(qwick -q --greedy --no-stdin "list all files")" ]
    vim_run "2Qwick! say it as a command
write! $T/after
undo
write! $T/undone"
    run -0 cat after
    [ "${lines[0]}" = one ] && [ "${lines[-1]}" = three ] && [ "${#lines[@]}" -eq 3 ]
    [ "${lines[1]}" = "$(echo 'list all files' | qwick -q -- "say it as a command")" ]
    cmp undone text
}

@test "vim: a failure changes nothing, and texts are never commands" {
    needs vim
    printf '%s\n' "a 'b' \$(touch line) \`touch line\`" 'ünï' >text
    cp text before
    stub 'cat >"$0.stdin"; echo "cut answer"; echo "qwick: it was cut" >&2; exit 6'
    vim_run "%Qwick! it's \$(touch question) \`touch question\` | ! touch question
write! $T/after"
    cmp after before
    grep -qF "exit status 6: qwick: it was cut" messages
    cmp bin/qwick.stdin before
    [ "$(tail -n 1 args)" = "it's \$(touch question) \`touch question\` | ! touch question" ]
    grep -qx -e --require-answer args
    [ -z "$(find . -name line -o -name question)" ]
    vim_run "Qwick! a
write! $T/after"
    cmp after before
    rm bin/qwick
    vim_run "%Qwick! a
write! $T/after"
    cmp after before
}

# ---- emacs ----

emacs_run() {
    timeout 60 emacs -Q --batch -l "$CONTRIB/emacs/qwick.el" --eval "(progn $1)" 2>&1
}

@test "emacs: the answer in a buffer, or in place of the region" {
    needs emacs
    printf '%s\n' one 'list all files' three >text
    emacs_run '(find-file "text") (setq qwick-options (list "--greedy"))
        (qwick "list all files")
        (with-current-buffer "*qwick*" (write-region nil nil "window"))
        (goto-char 5) (buffer-enable-undo)
        (qwick "say it as a command" 5 20 t)
        (write-region nil nil "after")'
    [ "$(<window)" = "$(qwick -q --greedy --no-stdin "list all files")" ]
    run -0 cat after
    [ "${lines[0]}" = one ] && [ "${lines[-1]}" = three ] && [ "${#lines[@]}" -eq 3 ]
    [ "${lines[1]}" = "$(echo 'list all files' | qwick -q --greedy -- "say it as a command")" ]
    # it compiles without a warning
    cp "$CONTRIB/emacs/qwick.el" .
    run -0 emacs -Q --batch --eval '(setq byte-compile-error-on-warn t)' -f batch-byte-compile qwick.el
}

@test "emacs: a failure changes nothing, and texts are never commands" {
    needs emacs
    printf '%s\n' "a 'b' \$(touch line) \`touch line\`" 'ünï' >text
    cp text before
    stub 'cat >"$0.stdin"; echo "cut answer"; echo "qwick: it was cut" >&2; exit 6'
    run -0 emacs_run '(find-file "text")
        (condition-case why (qwick "it'"'"'s $(touch question)" (point-min) (point-max) t)
            (error (message "%s" (error-message-string why))))
        (write-region nil nil "after")'
    [[ $output == *"Qwick: 6: qwick: it was cut"* ]]
    cmp after before
    cmp bin/qwick.stdin before
    [ "$(tail -n 1 args)" = "it's \$(touch question)" ]
    grep -qx -e --require-answer args
    [ -z "$(find . -name line -o -name question)" ]
}

# ---- fzf ----

@test "fzf: commands to choose from, the likeliest first" {
    needs fzf
    . "$CONTRIB/fzf/qwick.bash"
    export FZF_DEFAULT_OPTS=--filter=ls
    QWICK_PALETTE=(--seed 1)
    run -0 qwick_palette "list all files"
    [[ ${lines[0]} == *ls* ]]
    # the line is replaced by a choice and stays without one
    READLINE_LINE="list all files"
    qwick_palette_line
    [[ $READLINE_LINE == *ls* ]] && [ "$READLINE_POINT" -eq "${#READLINE_LINE}" ]
    export FZF_DEFAULT_OPTS=--filter=zzzz
    READLINE_LINE="list all files"
    qwick_palette_line
    [ "$READLINE_LINE" = "list all files" ]
    # votes, texts of several lines, control bytes
    stub 'printf "b\0a\033]0;x\007\nmore\0b\0"'
    export FZF_DEFAULT_OPTS=--filter=
    READLINE_LINE='$(touch question) it'"'"'s'
    qwick_palette_line
    [ "$READLINE_LINE" = $'b\na]0;x\nmore' ]
    [ "$(tail -n 1 args)" = "\$(touch question) it's" ]
    [ ! -e question ]
    rm bin/qwick
    READLINE_LINE=stays
    qwick_palette_line 2>/dev/null
    [ "$READLINE_LINE" = stays ]
}

# ---- llm ----

@test "llm: the plugin's requests to a server, with a stand-in for llm" {
    needs python3
    cat >llm.py <<'PY'
"""What the plugin uses of llm."""
class ModelError(Exception): pass
class Model: pass
class Options:
    def __init__(self, **values): self.values = values
    def __iter__(self): return iter(self.values.items())
def hookimpl(f): return f
PY
    cat >ask.py <<'PY'
import sys
from types import SimpleNamespace as O
import llm, llm_qwick

models = []
llm_qwick.register_models(models.append)
model, usage = models[0], {}

def prompt(text, system=None, schema=None, **options):
    return O(prompt=text, system=system, schema=schema, options=llm.Options(**options))

def ask(p, earlier=()):
    response = O(set_usage=lambda **u: usage.update(u))
    text = "".join(model.execute(p, True, response, O(responses=list(earlier))))
    return O(prompt=p, text=lambda: text)

if sys.argv[1] == "down":
    try:
        ask(prompt("list files"))
    except llm.ModelError as e:
        print(e)
else:
    first = ask(prompt("list files", temperature=0, max_tokens=20, seed=None))
    print(first.text())
    assert usage["input"] > 0 < usage["output"], usage
    n = usage["input"]
    ask(prompt("sorted by size", system="s", temperature=0), [first])
    assert usage["input"] > n, usage
    print(ask(prompt("a", schema={"enum": ["yes"]})).text())
    try:
        ask(prompt("a", temperature=-1))
    except llm.ModelError as e:
        print(e)
PY
    export PYTHONPATH="$T:$CONTRIB/llm" PYTHONDONTWRITEBYTECODE=1
    export QWICK_URL="unix:$T/s"
    run -0 python3 ask.py down
    [[ $output == "qwick serve does not answer: "* ]]
    qwick serve -q --listen "unix:$T/s" 3>&- &
    local server=$!
    for _ in $(seq 200); do [ -S "$T/s" ] && break; sleep 0.05; done
    run -0 python3 ask.py up
    kill "$server"
    wait "$server" || :
    [ "${lines[0]}" = ls ]
    [ "${lines[1]}" = '"yes"' ]
    [[ ${lines[2]} == "qwick: 400: "*temperature* ]]
    # the other address, and one that is none
    QWICK_URL=http://127.0.0.1:1 run -0 python3 ask.py down
    [[ $output == *"does not answer"* ]]
    QWICK_URL=https://example.org run -0 python3 ask.py down
    [[ $output == *"is neither"* ]]
}
